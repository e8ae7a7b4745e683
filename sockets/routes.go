package sockets

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
)

// routes is the routing table of a ROUTER or STREAM.
type routes struct {
	sync.Mutex
	table    map[string]route
	waiting  map[string][]*engine.Newcomer // newcomers that wait for an identity, by identity, in order
	next     uint32                        // the next generated identity
	handover bool                          // Options.Handover
	grace    time.Duration                 // identityGrace, except in tests
}

// route is the destination of messages for an identity: one connection or, with
// a nil conn, any connection that the pipe has or will have (ConnectAs).
// A route without a pipe leads nowhere.
type route struct {
	pipe *engine.Pipe
	conn *queue.Conn
}

// routeOf returns the route to a connection.
func routeOf(peer *engine.Peer) route { return route{peer.Pipe(), peer.Conn()} }

func (t *routes) init() {
	t.table = map[string]route{}
	t.grace = identityGrace
	t.next = rand.Uint32() // so that a restarted ROUTER does not reuse its last run's
}

func (t *routes) find(identity []byte) route {
	t.Lock()
	defer t.Unlock()
	return t.table[string(identity)]
}

// connectAs connects to an endpoint whose peer gets the given identity in the table.
func (s *socket) connectAs(t *routes, endpoint string, identity []byte) error {
	if err := checkIdentity("ConnectRoutingID", identity, 1); err != nil {
		return err
	}
	name := string(identity)
	if !t.reserve(name) {
		return ErrIdentityInUse
	}
	err := s.core.Connect(endpoint, []byte(name))
	if err != nil {
		t.remove(name, route{})
	}
	return err
}

// reserve enters a route to nowhere. It reports false if the identity is in
// use.
func (t *routes) reserve(identity string) bool {
	t.Lock()
	defer t.Unlock()
	if _, used := t.table[identity]; used {
		return false
	}
	t.table[identity] = route{}
	return true
}

// enter replaces a reserved route.
func (t *routes) enter(identity string, to route) {
	t.Lock()
	defer t.Unlock()
	t.table[identity] = to
}

// remove removes a route, if it is still that of the identity, and reports
// whether it was.
func (t *routes) remove(identity string, to route) bool {
	t.Lock()
	defer t.Unlock()
	if was, ok := t.table[identity]; !ok || was != to {
		return false
	}
	t.release(identity)
	return true
}

// admit enters a new connection under its peer's identity, or under a generated
// one, which it assigns to the peer. If the identity is in use, it waits for
// the grace, because a peer that has lost or closed its connection and
// reconnected at once may be here before the end of the old connection is
// noticed. If the identity is still in use then, admit returns the peer as a
// newcomer.
func (t *routes) admit(p *engine.Pipe, peer *engine.Peer, r *Router) *engine.Newcomer {
	t.Lock()
	defer t.Unlock()
	id := peer.Info().Identity
	if len(id) == 0 {
		id = t.generate()
	}
	peer.SetIdentity(slices.Clone(id))
	was, used := t.table[string(id)]
	switch {
	case used && t.handover && was.conn != nil:
		engine.PeerOf(was.conn).Disconnect(ErrHandedOver)
	case used:
		n := engine.NewNewcomer(p, peer, (*host)(r))
		if t.waiting == nil {
			t.waiting = map[string][]*engine.Newcomer{}
		}
		t.waiting[string(id)] = append(t.waiting[string(id)], n)
		return t.await(n)
	}
	t.table[string(id)] = routeOf(peer)
	return nil
}

// release removes an identity's route, and gives the identity to the newcomer that
// has waited longest for it. The mutex must be held.
func (t *routes) release(id string) {
	delete(t.table, id)
	if len(t.waiting[id]) == 0 {
		return
	}
	n := t.waiting[id][0]
	engine.DropFrom(t.waiting, id, n)
	t.table[id] = routeOf(n.Peer)
	n.Has = true
	close(n.Free)
}

// host is a Router as its newcomers know it.
type host Router

// GiveUp implements engine.Owner.
func (h *host) GiveUp(n *engine.Newcomer) bool {
	t := &h.routes
	t.Lock()
	defer t.Unlock()
	engine.DropFrom(t.waiting, string(n.Peer.Identity()), n)
	return !n.Has
}

// Welcome implements engine.Owner.
func (h *host) Welcome(n *engine.Newcomer) { (*Router)(h).welcome(n.Pipe, n.Peer) }

// identityGrace is how long the identity of a new connection may be in use
// before this is reported to the monitor.
const identityGrace = 500 * time.Millisecond

// await waits up to the grace for the newcomer to get its identity. It
// returns nil if it did, and the newcomer otherwise. The mutex must be held,
// and is released meanwhile.
func (t *routes) await(n *engine.Newcomer) *engine.Newcomer {
	t.Unlock()
	defer t.Lock()
	timer := time.NewTimer(t.grace)
	defer timer.Stop()
	select {
	case <-n.Free:
		return nil
	case <-timer.C:
	case <-n.Peer.Gone():
	}
	return n
}

// probe sends the empty message of Options.ProbeRouter first on a connection
// that has just begun.
func (s *socket) probe(p *engine.Pipe) {
	if s.opts().ProbeRouter {
		p.Out.Precede(engine.EmptyMessage, 1)
	}
}

// generate returns an unused identity: a zero byte and a counter.
func (t *routes) generate() []byte {
	for {
		id := binary.BigEndian.AppendUint32([]byte{0}, t.next)
		t.next++
		if _, used := t.table[string(id)]; !used {
			return id
		}
	}
}
