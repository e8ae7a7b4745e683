package lograte

import "time"

// Bounds of what waits for a logger that may be slow, and of how often it is told the same.
const (
	queueRoom = 1024 // records queued
	perKind   = 10   // records of one kind in a period
	period    = time.Second
	mostKinds = 256         // kinds told apart; the rest count as one
	linger    = time.Second // how long close waits for the logger
)
