//go:build race

package testenv

// RaceDetector says that tests run under the race detector, some ten times
// slower.
const RaceDetector = true
