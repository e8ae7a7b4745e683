// Package docs checks that the pages in the folder docs match the code. It contains
// only tests.
package docs
