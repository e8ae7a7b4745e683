package chp

import "clustermap/internal/mutate"

// newMapProperties are the properties of a KTHXBAI whose server has an empty map
// because it is new, not because all keys were deleted. Only clients of this
// package get them.
var newMapProperties = []byte("map=new\n")

// saysNew says whether a KTHXBAI tells of a map that is new and empty.
func saysNew(kthxbai record) bool {
	value, _ := property(kthxbai.props(), "map")
	return string(value) == "new"
}

// keep copies the client's keys into the state that is to replace its own, if the
// server's map is new and empty and the application wants that
// (ClientOptions.KeepOnEmpty), or if the server sends no snapshots. The updates that came meanwhile are merged
// afterwards, so they win.
func (s *session) keep(next *store) {
	c := s.client
	if (!s.fresh || !c.opts.KeepOnEmpty) && !mutate.KeepOldKeys {
		return
	}
	c.mu.Lock()
	before := c.state.Load()
	if before == nil || before.len() == 0 {
		c.mu.Unlock()
		return
	}
	cut := before.cut()
	c.mu.Unlock()
	defer cut.release()
	cut.records(func(r record) bool {
		if ttlOf(r.props()) == 0 {
			next.put(r.key(), r.seq(), r.uuid(), r.props(), r.value())
			s.kept++
		}
		return true
	})
	c.log.Warn("the server sends no snapshot, or that of a new and empty map; keys are kept", "server", s.server.name, "kept", s.kept, "dropped", cut.len()-s.kept)
}
