package member

import (
	"context"
	"slices"
	"sync"

	"clustermap/chp/internal/snapshot"
	"clustermap/chp/internal/wire"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// asks are the requests of clients for the map. They wait until this node has all that was committed when they came: a
// client that comes from another node must not find an older map here.
type asks struct {
	arrived chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []ask
	each    map[*sockets.Peer]int // of them
	round   uint64                // of questions to the cluster
}

type ask struct {
	peer  *sockets.Peer
	want  wire.Want
	round uint64 // that had begun before it came
}

func (a *asks) init() { a.arrived, a.each = make(chan struct{}, 1), map[*sockets.Peer]int{} }

// Ask adds a request.
func (m *Member) Ask(peer *sockets.Peer, want wire.Want) error {
	a := &m.asks
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) >= maxAsks || a.each[peer] >= maxAsksEach {
		return snapshot.ErrTooMany
	}
	a.waiting = append(a.waiting, ask{peer, want, a.round})
	a.each[peer]++
	wake.Signal(a.arrived)
	return nil
}

// Forget removes the requests of a connection that has ended.
func (m *Member) Forget(peer *sockets.Peer) {
	a := &m.asks
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.each[peer] > 0 {
		delete(a.each, peer)
		a.waiting = slices.DeleteFunc(a.waiting, func(q ask) bool { return q.peer == peer })
	}
}

// runAsks answers requests, until the context ends.
func (m *Member) runAsks(ctx context.Context) {
	for {
		round := m.asks.begin()
		if round == 0 {
			select {
			case <-m.asks.arrived:
				continue
			case <-ctx.Done():
				return
			}
		}
		if m.Index(ctx) != nil || !m.o.Order.Named() {
			if !wake.Pause(ctx, askPause) {
				return
			}
			continue
		}
		for _, q := range m.asks.take(round) {
			_ = m.o.Answer(ctx, q.peer, q.want) // the client is gone, or asks for too much
		}
	}
}

// begin begins another round, if there are requests, and returns its number, or 0.
func (a *asks) begin() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 {
		return 0
	}
	a.round++
	return a.round
}

// take removes the requests that came before a round, and returns them.
func (a *asks) take(round uint64) []ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.waiting) && a.waiting[n].round < round {
		n++
	}
	all := slices.Clone(a.waiting[:n])
	a.waiting = slices.Delete(a.waiting, 0, n)
	for _, q := range all {
		if a.each[q.peer]--; a.each[q.peer] <= 0 {
			delete(a.each, q.peer)
		}
	}
	return all
}
