package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/queue"
)

// incomplete limits the memory of partially received messages over all connections
// of a socket: what a reader keeps while it waits for the rest of a message, and what it
// needs beyond an ordinary chunk. The ordinary chunk of a reader that runs does not count.
//
// At the limit, a connection that needs more memory is not read until others have
// released some. The connection whose message began first does not count, and may need any
// memory, so that one of them always makes progress; one client may use all but 1/sharePart
// of the limit, so that its slow connections do not keep others waiting. While a
// connection waits, a peer that has stalled is disconnected. A peer has stalled if it takes
// longer than patience to send 1/stallPart of the memory that it holds; of those, one of
// the client that holds most is disconnected, the one that stalled first.
//
// Bytes that a reader keeps have arrived before they count. So that they do not grow with
// the number of connections, ordinary chunks are small while memory is scarce, and what
// does not fit in them waits, as large messages do.
type incomplete struct {
	tuning *Tuning
	scarce atomic.Bool // all but 1/sharePart is in use

	mu      sync.Mutex
	max     int
	used    int
	clients map[*queue.Client]int // their parts of used
	holders order
	changed chan struct{} // closed when memory is released; nil while no connection waits
}

const (
	stallPatience = 2 * time.Second
	stallPart     = 32
	sharePart     = 8
	scarceChunk   = keepTail + minRead
)

// holding is the memory that one connection holds. Only its reader changes parts,
// bytes and arrived, and it holds incomplete.mu for the first two, since other
// connections read bytes. The other fields are guarded by incomplete.mu.
type holding struct {
	conn    *conn
	client  *queue.Client
	parts   [2]int
	bytes   int       // the sum of parts
	arrived int       // since mark
	listed  bool      // in holders, while it holds or awaits memory
	waiting bool      // it waits for memory, so its peer has not stalled
	evicted bool      // its peer was disconnected; it no longer counts
	mark    time.Time // when the peer had last sent 1/stallPart of bytes

	before, after *holding // in holders
}

// Parts of a holding.
const (
	partFrames = iota // the reader's chunk
	partWire          // the chunk of a codec's source
)

// order is the list of holdings, in the order in which their messages began. Unlike one of
// container/list it does not allocate.
type order struct {
	first, last *holding
	n           int
}

func (o *order) push(h *holding) {
	if h.before = o.last; h.before != nil {
		h.before.after = h
	} else {
		o.first = h
	}
	o.last, h.listed = h, true
	o.n++
}

func (o *order) remove(h *holding) {
	if h.before != nil {
		h.before.after = h.after
	} else {
		o.first = h.after
	}
	if h.after != nil {
		h.after.before = h.before
	} else {
		o.last = h.before
	}
	h.before, h.after, h.listed = nil, nil, false
	o.n--
}

func (m *incomplete) init(o *Config, t *Tuning) {
	m.tuning, m.max, m.clients = t, o.MaxIncompleteBytes, map[*queue.Client]int{}
}

// setLimit takes over the limit in o.
func (m *incomplete) setLimit(o *Config) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = o.MaxIncompleteBytes
	m.tell()
}

// ordinary returns the size of a chunk that does not count while the reader runs.
func (r *reader) ordinary() int {
	if r.pipe.socket.incomplete.scarce.Load() {
		return scarceChunk
	}
	return buf.Large
}

// reserve changes a part of the reader's holding to that of a chunk of the given number of
// bytes; 0 stands for an ordinary chunk. If the part grows, reserve may wait until other
// connections release memory, except in a receive call that reads the connection
// itself. If the connection ends during the wait, the part does not change.
func (r *reader) reserve(part, bytes int) {
	if bytes > 0 {
		bytes = buf.Size(bytes)
	}
	r.hold(part, bytes, !r.borrowed)
}

// keep changes a part of the reader's holding to a chunk, or nil, that stays while the
// reader waits for the peer.
func (r *reader) keep(part int, chunk *buf.Chunk) {
	bytes := 0
	if chunk != nil {
		bytes = len(chunk.Data())
	}
	r.hold(part, bytes, false)
}

func (r *reader) hold(part, bytes int, wait bool) {
	if r.holding == nil {
		if bytes == 0 {
			return
		}
		r.holding = &holding{conn: r.conn, client: r.pipe.In.Client()}
	}
	if r.holding.parts[part] != bytes {
		r.pipe.socket.incomplete.set(r.holding, part, bytes, wait)
	}
}

// keptUp records that n more bytes of an incomplete message have arrived. If it follows on
// a whole one, it began now. If messages before it have waited for the application, the
// peer has all its time again.
func (r *reader) keptUp(n int, whole bool) {
	h := r.holding
	h.arrived += n
	if h.arrived < h.bytes/stallPart && !r.delivered && !whole {
		return
	}
	m := &r.pipe.socket.incomplete
	m.mu.Lock()
	defer m.mu.Unlock()
	h.mark, h.arrived = time.Now(), 0
	if whole && h.listed && h != m.holders.last {
		m.holders.remove(h)
		m.holders.push(h)
		m.tell()
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
	if !h.listed && bytes > 0 {
		m.holders.push(h)
		h.mark = time.Now()
	}
	more := bytes - h.parts[part]
	h.waiting = true
	defer func() { h.waiting = false }()
	for wait && more > 0 && m.crowded(h, more) {
		if m.evict(h, more) {
			continue
		}
		if !m.wait(h) {
			return
		}
	}
	h.parts[part] = bytes
	h.bytes += more
	m.add(h, more)
	h.mark, h.arrived = time.Now(), 0
	switch {
	case bytes == 0 && h.bytes == 0:
		m.drop(h)
	case more < 0:
		m.tell()
	default:
		m.judge()
	}
}

// add adds to the sums. mu must be held.
func (m *incomplete) add(h *holding, bytes int) {
	m.used += bytes
	if m.clients[h.client] += bytes; m.clients[h.client] == 0 {
		delete(m.clients, h.client)
	}
}

// crowded reports whether h has to wait for more memory. mu must be held.
func (m *incomplete) crowded(h *holding, more int) bool {
	first := m.holders.first
	if h == first {
		return false
	}
	own := m.clients[h.client] + more
	if first != nil && first.client == h.client {
		own -= first.bytes
	}
	return m.counted()+more > m.max || own > m.share()
}

// counted returns what is used, without the connection whose message began first. mu must
// be held.
func (m *incomplete) counted() int {
	if first := m.holders.first; first != nil {
		return m.used - first.bytes
	}
	return m.used
}

// share returns what one client may use. mu must be held.
func (m *incomplete) share() int { return m.max - m.max/sharePart }

// judge finds out whether memory is scarce. mu must be held.
func (m *incomplete) judge() {
	if scarce := m.counted() >= m.share(); scarce != m.scarce.Load() {
		m.scarce.Store(scarce)
	}
}

// wait waits until memory is released, or for a quarter of patience, when a peer may
// have stalled. It returns false if the connection of h has ended. mu must be held;
// wait releases it while waiting.
func (m *incomplete) wait(h *holding) bool {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	changed, patience := m.changed, m.tuning.StallPatience
	m.mu.Unlock()
	_ = h.conn.heard() // the peer is not silent: we do not read. On an error, gone is closed.
	ended := false
	select {
	case <-changed:
	case <-time.After(patience / 4):
	case <-h.conn.gone:
		ended = true
	}
	h.conn.listening()
	m.mu.Lock()
	return !ended && !h.evicted
}

// evict disconnects a peer that has stalled, so that another gets more memory: one of the
// same client if only that uses too much. It reports false if none has stalled. mu must be
// held.
func (m *incomplete) evict(needy *holding, more int) bool {
	all := m.counted()+more > m.max
	var worst *holding
	most, stalled := 0, time.Now().Add(-m.tuning.StallPatience)
	for h := m.holders.first; h != nil; h = h.after {
		dealing := h.conn.life.reads.Load()%2 == 1 // its reader is not waiting for the peer
		if h.bytes == 0 || h.waiting || dealing || !h.mark.Before(stalled) || !all && h.client != needy.client {
			continue
		}
		if held := m.clients[h.client]; held > most || held == most && h.mark.Before(worst.mark) {
			worst, most = h, held
		}
	}
	if worst == nil {
		return false
	}
	worst.conn.close(ErrStalled)
	worst.evicted = true
	m.drop(worst)
	return true
}

// drop removes a holding from the list and its bytes from the sum. mu must be held.
func (m *incomplete) drop(h *holding) {
	if h.listed {
		m.holders.remove(h)
		m.add(h, -h.bytes)
		m.tell()
	}
}

// tell wakes the connections that wait for memory. mu must be held.
func (m *incomplete) tell() {
	m.judge()
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
