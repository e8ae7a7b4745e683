package sockets

import (
	"container/list"
	"sync"
	"time"
)

// incomplete bounds the memory of messages that have not arrived as a whole, over
// all connections of a socket. What fits a reader's ordinary chunk does not count.
//
// A connection that needs more while there is no more is not read until there is.
// The one whose message began first may always go on, beyond the bound if need
// be, so that there is always one that finishes. If it does not, because its peer
// has stalled, it is disconnected: so nobody holds the memory for ever while
// others need it. A peer has stalled if it takes longer than patience to send a
// stallPart of what it holds; the one that has stalled longest goes first.
type incomplete struct {
	max      int
	patience time.Duration // stallPatience, but in tests

	mu      sync.Mutex
	used    int
	holders list.List     // of *holding, in the order in which they began
	changed chan struct{} // closed when somebody holds less; nil while nobody waits
}

const (
	stallPatience = 2 * time.Second
	stallPart     = 32
)

// holding is what one connection holds. Its reader alone changes parts, bytes and
// arrived; all else, and what others read of it, is guarded by incomplete.mu.
type holding struct {
	conn    *conn
	parts   [2]int
	bytes   int           // the sum of parts
	arrived int           // since mark
	element *list.Element // in holders, while it holds something
	waiting bool          // for more, so it is not its peer that stalls
	evicted bool          // and counts no more
	mark    time.Time     // when the peer had last sent a stallPart
}

// Parts of a holding.
const (
	partFrames = iota // the reader's chunk
	partWire          // the chunk of a codec's source
)

func (m *incomplete) init(o *Options) {
	m.max, m.patience = o.MaxIncompleteBytes, stallPatience
}

// reserve says that a part of what the reader's connection holds is going to have
// so many bytes, 0 for an ordinary chunk. It may wait, unless it is less than
// before. If the connection ends meanwhile, nothing changes.
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

// keptUp takes note of bytes that have arrived.
func (r *reader) keptUp(n int) {
	h := r.holding
	if h.arrived += n; h.arrived >= h.bytes/stallPart {
		m := &r.pipe.socket.incomplete
		m.mu.Lock()
		h.mark, h.arrived = time.Now(), 0
		m.mu.Unlock()
	}
}

// set changes a part of a holding, and waits for room if it grows and may wait.
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

// wait waits until somebody holds less, or may have stalled. It returns false if
// the connection ended. mu must be held, and is released meanwhile.
func (m *incomplete) wait(h *holding) bool {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	changed := m.changed
	m.mu.Unlock()
	_ = h.conn.heard() // it is not the peer that is silent; an end shows below
	timer := time.NewTimer(m.patience / 4)
	defer timer.Stop()
	ended := false
	select {
	case <-changed:
	case <-timer.C:
	case <-h.conn.gone:
		ended = true
	}
	h.conn.listening()
	m.mu.Lock()
	return !ended && !h.evicted
}

// evict disconnects the peer that has stalled longest, if one has. mu must be held.
func (m *incomplete) evict() bool {
	var worst *holding
	for e := m.holders.Front(); e != nil; e = e.Next() {
		h := e.Value.(*holding)
		dealing := h.conn.life.reads.Load()%2 == 1 // with what it has read: it is us who are slow
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

// drop takes a holding off the list, and what it holds off the sum. mu must be
// held.
func (m *incomplete) drop(h *holding) {
	if h.element != nil {
		m.holders.Remove(h.element)
		h.element = nil
		m.used -= h.bytes
		m.tell()
	}
}

// tell wakes those who wait. mu must be held.
func (m *incomplete) tell() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// release gives back all that the reader's connection holds.
func (r *reader) release() {
	if r.holding != nil {
		m := &r.pipe.socket.incomplete
		m.mu.Lock()
		m.drop(r.holding)
		m.mu.Unlock()
	}
}
