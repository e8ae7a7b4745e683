package engine

import (
	"sync"

	"clustermap/internal/queue"
)

// Totals count since the socket was made, over all of its connections; see sockets.Totals.
type Totals struct {
	MessagesIn, BytesIn   uint64
	MessagesOut, BytesOut uint64
	Drops, Discarded      uint64

	Connections, Reconnections uint64
}

// totals are what a connection leaves behind. Its own counters go on counting until then, so that
// a message costs nothing more. No lock but Socket.mu and Outbox.mu is taken under mu.
type totals struct {
	mu   sync.Mutex
	gone Totals // of connections that have ended, and pipes that were removed
}

// began counts a connection that is established.
func (t *totals) began(p *Pipe) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone.Connections++
	if p.linked {
		t.gone.Reconnections++
	}
	p.linked = true
}

// ended makes a connection no longer that of its pipe, and adds what it has counted.
func (t *totals) ended(p *Pipe, peer *Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.peer.Store(nil)
	t.gone.add(&peer.conduit)
}

func (t *Totals) add(c *queue.Conn) {
	t.MessagesIn += c.MessagesIn.Load()
	t.BytesIn += c.BytesIn.Load()
	t.MessagesOut += c.MessagesOut.Load()
	t.BytesOut += c.BytesOut.Load()
	t.Discarded += c.Discarded.Load()
}

// Totals returns the totals.
func (s *Socket) Totals() Totals {
	s.totals.mu.Lock()
	defer s.totals.mu.Unlock()
	t := s.totals.gone
	for _, p := range s.Pipes() {
		if peer := p.peer.Load(); peer != nil {
			t.add(&peer.conduit)
		}
		t.Drops += p.Out.Status().Drops
	}
	return t
}

// remove unlists a pipe, whose drops so far become those of the socket.
func (s *Socket) remove(p *Pipe) (drops uint64) {
	t := &s.totals
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	_, listed := s.pipes[p]
	delete(s.pipes, p)
	s.mu.Unlock()
	if listed {
		drops = p.Out.Status().Drops
		t.gone.Drops += drops
	}
	return drops
}

// lost adds the drops of a pipe that was removed with fewer.
func (t *totals) lost(p *Pipe, before uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone.Drops += p.Out.Status().Drops - before
}
