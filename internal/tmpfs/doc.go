// Package tmpfs gives tests small file systems of their own, which they can fill. There are
// none on systems other than Linux.
package tmpfs
