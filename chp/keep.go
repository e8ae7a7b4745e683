package chp

import (
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
)

// keeps reports whether the client keeps its keys: if the server's map is new and empty
// and ClientOptions.KeepOnEmpty is set, or if the server sends no snapshots.
func (s *session) keeps() bool { return s.fresh && s.client.opts.KeepOnEmpty || mutate.KeepOldKeys }

// keep copies the client's keys into the new state, if keeps reports true. Updates that
// arrived meanwhile are merged afterwards, so they win.
func (s *session) keep(next *store.Map) {
	if !s.keeps() {
		return
	}
	c := s.client
	if c.Len() == 0 {
		return
	}
	cut := c.replica.Cut()
	defer cut.Release()
	cut.Records(func(r kvmsg.Record) bool {
		if kvmsg.TTLOf(r.Props()) == 0 {
			next.Put(r.Key(), r.Seq(), r.UUID(), r.Props(), r.Value())
			s.kept++
		}
		return true
	})
	c.log.Warn("keys kept: the server sent no snapshot, or that of a new and empty map", "server", s.server.name, "kept", s.kept, "dropped", cut.Len()-s.kept)
}
