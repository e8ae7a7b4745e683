// Package tmpfs provides small file systems that tests can fill. It works on Linux
// only.
package tmpfs
