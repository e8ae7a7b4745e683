//go:build !race

package testenv

// RaceDetector reports whether tests run under the race detector, which makes them
// about ten times slower.
const RaceDetector = false
