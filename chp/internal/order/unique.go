package order

import (
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// unique finds updates that clients which do not number them have sent to several nodes of a cluster, as the guide's client of
// model 6 does: they have the same UUID. It remembers the last uniqueLast of them, of those that were ordered here or
// anywhere.
type unique struct {
	places map[[kvmsg.UUIDSize]byte]int // where each is in ring
	ring   [][kvmsg.UUIDSize]byte
	next   int
}

// uuidOf returns the UUID of an update, if it has one.
func uuidOf(r kvmsg.Record) (id [kvmsg.UUIDSize]byte, ok bool) {
	b := r.UUID()
	if len(b) != len(id) {
		return id, false
	}
	return [kvmsg.UUIDSize]byte(b), true
}

// add adds an update, and reports whether it was not there.
func (u *unique) add(r kvmsg.Record) bool {
	id, ok := uuidOf(r)
	if !ok {
		return true
	}
	if _, there := u.places[id]; there {
		return false
	}
	if u.places == nil {
		u.places = map[[kvmsg.UUIDSize]byte]int{}
	}
	if len(u.ring) < uniqueLast {
		u.ring = append(u.ring, [kvmsg.UUIDSize]byte{})
	} else if at, there := u.places[u.ring[u.next]]; there && at == u.next {
		delete(u.places, u.ring[u.next])
	}
	u.ring[u.next], u.places[id] = id, u.next
	u.next = (u.next + 1) % uniqueLast
	return true
}

// remove removes an update that is lost.
func (u *unique) remove(r kvmsg.Record) {
	if id, ok := uuidOf(r); ok {
		delete(u.places, id)
	}
}

// addAll adds the updates of a batch that are of clients which do not number them.
func (u *unique) addAll(h *state.Head, wire []byte, spans []buf.Span) {
	if !unnumbered(h) {
		return
	}
	for _, s := range spans {
		u.add(kvmsg.Record(wire[s.Start:s.End]))
	}
}

// filter removes the updates that are there from spans, in their memory, and adds the others.
func (u *unique) filter(wire []byte, spans []buf.Span) []buf.Span {
	kept := spans[:0]
	for _, s := range spans {
		if u.add(kvmsg.Record(wire[s.Start:s.End])) {
			kept = append(kept, s)
		}
	}
	return kept
}

// unnumbered reports whether a batch is of clients that do not number their updates: nobody or a node has.
func unnumbered(h *state.Head) bool {
	return h.Client == ledger.ID{} && h.Counter == 0 || h.Client.IsNode()
}
