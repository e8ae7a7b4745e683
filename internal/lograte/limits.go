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

// A client tries an unreachable server twice a second, and a passive server the active one
// 20 times. A cause is logged when it first
// occurs, and then at intervals that double, with the number of failures since.
const (
	failureFirst = 5 * time.Second
	failureMost  = 5 * time.Minute
	maxFailures  = 64 // peers and causes
)
