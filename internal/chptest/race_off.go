//go:build !race

package chptest

// RaceDetector says that tests run under the race detector, some ten times
// slower.
const RaceDetector = false
