package chp

import "clustermap/internal/store"

// replica is the state of a client: its map, and the deadlines of its keys.
type replica struct {
	store.Map
	deadlines *deadlines // nil if no key has a deadline
}

func newReplica(o store.Options, d *deadlines) *replica {
	r := &replica{deadlines: d}
	r.SetUp(o)
	return r
}
