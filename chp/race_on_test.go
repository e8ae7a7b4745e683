//go:build race

package chp

// raceDetector says that tests run under the race detector, some ten times
// slower.
const raceDetector = true
