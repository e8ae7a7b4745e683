//go:build portable

package connection

// portable is true under the build tag that chooses the portable stream.
const portable = true
