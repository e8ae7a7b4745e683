package chp

// replica is the state of a client: its map, and when the keys of it end.
type replica struct {
	store
	deadlines *deadlines // nil if no key has a deadline
}

func newReplica(o storeOptions, d *deadlines) *replica {
	r := &replica{deadlines: d}
	r.setUp(o)
	return r
}
