package chp

import (
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// replica is the state of a client: its map, and the deadlines of its keys.
type replica struct {
	store.Map
	deadlines *timer.Deadlines // nil if no key has a deadline
}

func newReplica(o store.Options, d *timer.Deadlines) *replica {
	r := &replica{deadlines: d}
	r.SetUp(o)
	return r
}
