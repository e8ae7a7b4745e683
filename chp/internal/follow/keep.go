package follow

import (
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
)

// keeps reports whether the client keeps its keys: if the server's map is new and empty
// and Options.KeepOnEmpty is set, or if the server sends no snapshots.
func (s *Session) keeps() bool { return s.fresh && s.opts.KeepOnEmpty || mutate.KeepOldKeys }

// keep copies the client's keys into the new state, if keeps reports true. Updates that
// arrived meanwhile are merged afterwards, so they win.
func (s *Session) keep(next *store.Map) {
	if !s.keeps() {
		return
	}
	cut := s.opts.Replica.Cut()
	if cut.Cut == nil {
		return
	}
	defer cut.Release()
	if cut.Len() == 0 {
		return
	}
	cut.Records(func(r kvmsg.Record) bool {
		if kvmsg.TTLOf(r.Props()) == 0 {
			next.Put(r.Key(), r.Seq(), r.UUID(), r.Props(), r.Value())
			s.kept++
		}
		return true
	})
	s.opts.Log.Warn("keys kept: the server sent no snapshot, or that of a new and empty map", "server", s.server.Name, "kept", s.kept, "dropped", cut.Len()-s.kept)
}
