//go:build !portable

package engine

// portable is true under the build tag that chooses the portable stream.
const portable = false
