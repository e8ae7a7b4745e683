package sockets

import (
	"container/list"
	"sync"
	"time"
)

// incomplete limits the memory of partially received messages over all connections
// of a socket. A message that fits in a reader's ordinary chunk does not count.
//
// At the limit, a connection that needs more memory is not read until others have
// released some. The connection whose message began first may exceed the limit, so
// that one of them always makes progress. While a connection waits, a peer that has
// stalled is disconnected. A peer has stalled if it takes longer than patience to
// send 1/stallPart of the memory that it holds; the peer that stalled first is
// disconnected first.
type incomplete struct {
	patience time.Duration // stallPatience, except in tests

	mu      sync.Mutex
	max     int
	used    int
	holders list.List     // of *holding, in the order in which they began
	changed chan struct{} // closed when memory is released; nil while no connection waits
}

const (
	stallPatience = 2 * time.Second
	stallPart     = 32
)

// holding is the memory that one connection holds. Only its reader changes parts,
// bytes and arrived, and it holds incomplete.mu for the first two, since other
// connections read bytes. The other fields are guarded by incomplete.mu.
type holding struct {
	conn    *conn
	parts   [2]int
	bytes   int           // the sum of parts
	arrived int           // since mark
	element *list.Element // in holders, while it holds memory
	waiting bool          // it waits for memory, so its peer has not stalled
	evicted bool          // its peer was disconnected; it no longer counts
	mark    time.Time     // when the peer had last sent 1/stallPart of bytes
}

// Parts of a holding.
const (
	partFrames = iota // the reader's chunk
	partWire          // the chunk of a codec's source
)

func (m *incomplete) init(o *Options) {
	m.max, m.patience = o.MaxIncompleteBytes, stallPatience
}

// setLimit takes over the limit in o.
func (m *incomplete) setLimit(o *Options) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = o.MaxIncompleteBytes
	m.tell()
}

// reserve changes a part of the reader's holding to the given number of bytes; 0
// stands for an ordinary chunk. If the part grows, reserve may wait until other
// connections release memory, except in a receive call that reads the connection
// itself. If the connection ends during the wait, the part does not change.
func (r *reader) reserve(part, bytes int) {
	if r.holding == nil {
		if bytes == 0 {
			return
		}
		r.holding = &holding{conn: r.conn}
	}
	if r.holding.parts[part] != bytes {
		r.pipe.socket.incomplete.set(r.holding, part, bytes, !r.borrowed)
	}
}

// keptUp records that n more bytes of an incomplete message have arrived. If messages
// before it have waited for the application, the peer has all its time again.
func (r *reader) keptUp(n int) {
	h := r.holding
	if h.arrived += n; h.arrived >= h.bytes/stallPart || r.delivered {
		m := &r.pipe.socket.incomplete
		m.mu.Lock()
		h.mark, h.arrived = time.Now(), 0
		m.mu.Unlock()
	}
}

// set changes a part of a holding. If the part grows and wait is set, it first
// waits for room.
func (m *incomplete) set(h *holding, part, bytes int, wait bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.evicted {
		return
	}
	if h.element == nil && bytes > 0 {
		h.element, h.mark = m.holders.PushBack(h), time.Now()
	}
	more := bytes - h.parts[part]
	h.waiting = true
	defer func() { h.waiting = false }()
	for wait && more > 0 && m.used+more > m.max && m.holders.Front() != h.element {
		if m.evict() {
			continue
		}
		if !m.wait(h) {
			return
		}
	}
	h.parts[part] = bytes
	h.bytes += more
	m.used += more
	h.mark, h.arrived = time.Now(), 0
	switch {
	case bytes == 0 && h.bytes == 0:
		m.drop(h)
	case more < 0:
		m.tell()
	}
}

// wait waits until memory is released, or for a quarter of patience, when a peer may
// have stalled. It returns false if the connection of h has ended. mu must be held;
// wait releases it while waiting.
func (m *incomplete) wait(h *holding) bool {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	changed := m.changed
	m.mu.Unlock()
	_ = h.conn.heard() // the peer is not silent: we do not read. On an error, gone is closed.
	ended := false
	select {
	case <-changed:
	case <-time.After(m.patience / 4):
	case <-h.conn.gone:
		ended = true
	}
	h.conn.listening()
	m.mu.Lock()
	return !ended && !h.evicted
}

// evict disconnects the peer that stalled first. It reports false if none has
// stalled. mu must be held.
func (m *incomplete) evict() bool {
	var worst *holding
	for e := m.holders.Front(); e != nil; e = e.Next() {
		h := e.Value.(*holding)
		dealing := h.conn.life.reads.Load()%2 == 1 // its reader is not waiting for the peer
		if h.bytes > 0 && !h.waiting && !dealing && (worst == nil || h.mark.Before(worst.mark)) {
			worst = h
		}
	}
	if worst == nil || time.Since(worst.mark) <= m.patience {
		return false
	}
	worst.conn.close(ErrStalled)
	worst.evicted = true
	m.drop(worst)
	return true
}

// drop removes a holding from the list and its bytes from the sum. mu must be held.
func (m *incomplete) drop(h *holding) {
	if h.element != nil {
		m.holders.Remove(h.element)
		h.element = nil
		m.used -= h.bytes
		m.tell()
	}
}

// tell wakes the connections that wait for memory. mu must be held.
func (m *incomplete) tell() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// release releases everything that the reader's connection holds.
func (r *reader) release() {
	if r.holding != nil {
		m := &r.pipe.socket.incomplete
		m.mu.Lock()
		m.drop(r.holding)
		m.mu.Unlock()
	}
}
