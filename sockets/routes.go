package sockets

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"clustermap/internal/queue"
)

// routes is the routing table of a ROUTER or STREAM.
type routes struct {
	sync.Mutex
	table    map[string]route
	waiting  map[string][]*newcomer // newcomers that wait for an identity, by identity, in order
	next     uint32                 // the next generated identity
	handover bool                   // Options.Handover
	grace    time.Duration          // identityGrace, except in tests
}

// route is the destination of messages for an identity: one connection or, with
// a nil conn, any connection that the pipe has or will have (ConnectAs).
// A route without a pipe leads nowhere.
type route struct {
	pipe *pipe
	conn *queue.Conn
}

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
	err := s.connect(endpoint, []byte(name))
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
func (t *routes) admit(p *pipe, peer *Peer) *newcomer {
	t.Lock()
	defer t.Unlock()
	id := peer.info.Identity
	if len(id) == 0 {
		id = t.generate()
	}
	peer.identity = slices.Clone(id)
	was, used := t.table[string(id)]
	switch {
	case used && t.handover && was.conn != nil:
		peerOf(was.conn).Disconnect(ErrHandedOver)
	case used:
		return t.await(t.queue(p, peer))
	}
	t.table[string(id)] = route{p, &peer.conduit}
	return nil
}

// identityGrace is how long the identity of a new connection may be in use
// before this is reported to the monitor.
const identityGrace = 500 * time.Millisecond

// await waits up to the grace for the newcomer to get its identity. It
// returns nil if it did, and the newcomer otherwise. The mutex must be held,
// and is released meanwhile.
func (t *routes) await(n *newcomer) *newcomer {
	t.Unlock()
	defer t.Lock()
	timer := time.NewTimer(t.grace)
	defer timer.Stop()
	select {
	case <-n.free:
		return nil
	case <-timer.C:
	case <-n.peer.conn.gone:
	}
	return n
}

// probe sends the empty message of Options.ProbeRouter first on a connection
// that has just begun.
func (p *pipe) probe() {
	if p.socket.opts().ProbeRouter {
		p.out.Precede(emptyMessage, 1)
	}
}

// emptyMessage is a message of one empty frame, in wire form.
var emptyMessage = []byte{0, 0}

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
