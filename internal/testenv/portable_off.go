//go:build !portable

package testenv

// Portable is true under the build tag that chooses the portable stream.
const Portable = false
