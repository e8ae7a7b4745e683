//go:build portable

package sockets

// portable is true under the build tag that chooses the portable stream.
const portable = true
