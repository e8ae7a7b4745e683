//go:build race

package sockets

// raceEnabled is true when the race detector is on, under which pools lose
// things on purpose.
const raceEnabled = true
