package route

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
)

// Table is the routing table of a ROUTER or STREAM.
type Table struct {
	// Admitted is called for a newcomer that gets its identity.
	Admitted func(p *engine.Pipe, peer *engine.Peer)
	Grace    time.Duration // identityGrace, except in tests

	mu       sync.Mutex
	table    map[string]Route
	waiting  map[string][]*engine.Newcomer // newcomers that wait for an identity, by identity, in order
	next     uint32                        // the next generated identity
	handover bool                          // see SetHandover
}

// Route is the destination of messages for an identity: one connection or, with
// a nil Conn, any connection that the pipe has or will have (ConnectAs).
// A route without a pipe leads nowhere.
type Route struct {
	Pipe *engine.Pipe
	Conn *queue.Conn
}

// Of returns the route to a connection.
func Of(peer *engine.Peer) Route { return Route{peer.Pipe(), peer.Conn()} }

func (t *Table) Init() {
	t.table = map[string]Route{}
	t.Grace = identityGrace
	t.next = rand.Uint32() // so that a restarted ROUTER does not reuse its last run's
}

func (t *Table) Find(identity []byte) Route {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table[string(identity)]
}

// Reserve enters a route to nowhere. It reports false if the identity is in
// use.
func (t *Table) Reserve(identity string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, used := t.table[identity]; used {
		return false
	}
	t.table[identity] = Route{}
	return true
}

// Remove removes a route, if it is still that of the identity, and reports
// whether it was.
func (t *Table) Remove(identity string, to Route) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was, ok := t.table[identity]; !ok || was != to {
		return false
	}
	t.release(identity)
	return true
}

// Admit enters a new connection under its peer's identity, or under a generated
// one, which it assigns to the peer. If the identity is in use, it waits for
// the grace, because a peer that has lost or closed its connection and
// reconnected at once may be here before the end of the old connection is
// noticed. If the identity is still in use then, admit returns the peer as a
// newcomer.
func (t *Table) Admit(p *engine.Pipe, peer *engine.Peer) *engine.Newcomer {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := peer.Info().Identity
	if len(id) == 0 {
		id = t.generate()
	}
	peer.SetIdentity(slices.Clone(id))
	was, used := t.table[string(id)]
	switch {
	case used && t.handover && was.Conn != nil:
		engine.PeerOf(was.Conn).Disconnect(engine.ErrHandedOver)
	case used:
		n := engine.NewNewcomer(peer, t.giveUp, t.Admitted)
		if t.waiting == nil {
			t.waiting = map[string][]*engine.Newcomer{}
		}
		t.waiting[string(id)] = append(t.waiting[string(id)], n)
		return t.await(n)
	}
	t.table[string(id)] = Of(peer)
	return nil
}

// release removes an identity's route, and gives the identity to the newcomer that
// has waited longest for it. The mutex must be held.
func (t *Table) release(id string) {
	delete(t.table, id)
	if len(t.waiting[id]) == 0 {
		return
	}
	n := t.waiting[id][0]
	engine.DropFrom(t.waiting, id, n)
	t.table[id] = Of(n.Peer)
	n.Has = true
	close(n.Free)
}

// giveUp is for engine.NewNewcomer.
func (t *Table) giveUp(n *engine.Newcomer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	engine.DropFrom(t.waiting, string(n.Peer.Identity()), n)
	return !n.Has
}

// identityGrace is how long the identity of a new connection may be in use
// before this is reported to the monitor.
const identityGrace = 500 * time.Millisecond

// await waits up to the grace for the newcomer to get its identity. It
// returns nil if it did, and the newcomer otherwise. The mutex must be held,
// and is released meanwhile.
func (t *Table) await(n *engine.Newcomer) *engine.Newcomer {
	t.mu.Unlock()
	defer t.mu.Lock()
	timer := time.NewTimer(t.Grace)
	defer timer.Stop()
	select {
	case <-n.Free:
		return nil
	case <-timer.C:
	case <-n.Peer.Gone():
	}
	return n
}

// generate returns an unused identity: a zero byte and a counter.
func (t *Table) generate() []byte {
	for {
		id := binary.BigEndian.AppendUint32([]byte{0}, t.next)
		t.next++
		if _, used := t.table[string(id)]; !used {
			return id
		}
	}
}

// SetHandover sets whether a new connection takes an identity that is in use.
func (t *Table) SetHandover(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handover = on
}

// Name enters a pipe, of Connect, under its name; it gives it a generated one if it has none.
func (t *Table) Name(p *engine.Pipe) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Name == nil {
		p.Name = t.generate()
	}
	t.table[string(p.Name)] = Route{Pipe: p}
}

// Forget removes the route of a pipe that was entered under its name.
func (t *Table) Forget(p *engine.Pipe) {
	if p.Name != nil {
		t.Remove(string(p.Name), Route{Pipe: p})
	}
}

// Status returns the numbers of identities and of those that newcomers wait for.
func (t *Table) Status() (identities, awaited int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.table), len(t.waiting)
}
