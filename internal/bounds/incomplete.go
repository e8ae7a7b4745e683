package bounds

import (
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/list"
	"clustermap/internal/queue"
)

// Incomplete limits the memory of partially received messages over all connections
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
type Incomplete struct {
	tuning *Tuning
	scarce atomic.Bool // all but 1/sharePart is in use

	mu      sync.Mutex
	max     int
	used    int
	clients map[*queue.Client]int // their parts of used
	holders list.List[Holding]    // in the order in which their messages began
	changed queue.Gate            // for memory that is released
}

// Holding is the memory that one connection holds. Only its reader changes parts,
// bytes and arrived, and it holds Incomplete.mu for the first two, since other
// connections read bytes. The other fields are guarded by Incomplete.mu.
type Holding struct {
	conn    Conn
	client  *queue.Client
	parts   [2]int
	bytes   int       // the sum of parts
	arrived int       // since mark
	waiting bool      // it waits for memory, so its peer has not stalled
	evicted bool      // its peer was disconnected; it no longer counts
	mark    time.Time // when the peer had last sent 1/stallPart of bytes

	place list.Element[Holding] // in holders, while it holds or awaits memory
}

// Parts of a holding.
const (
	PartFrames = iota // the reader's chunk
	PartWire          // the chunk of a codec's source
)

// Init initializes it with the limit in bytes.
func (m *Incomplete) Init(most int, t *Tuning) {
	m.tuning, m.max, m.clients = t, most, map[*queue.Client]int{}
}

// SetLimit changes the limit.
func (m *Incomplete) SetLimit(most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = most
	m.tell()
}

// Set changes a part of a holding. If the part grows and wait is set, it first
// waits for room.
func (m *Incomplete) Set(h *Holding, part, bytes int, wait bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(h, part, bytes, wait)
}

// Ahead is Set for a part that grows by more than has arrived, because the rest of a message was
// announced. It does not wait, and does nothing and returns false if more than 1/aheadPart of
// the limit would be in use.
func (m *Incomplete) Ahead(h *Holding, part, bytes int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+bytes-h.parts[part] > m.max/aheadPart {
		return false
	}
	m.set(h, part, bytes, false)
	return true
}

// set is Set. mu must be held, and is released while it waits.
func (m *Incomplete) set(h *Holding, part, bytes int, wait bool) {
	if h.evicted {
		return
	}
	if !h.place.In(&m.holders) && bytes > 0 {
		m.holders.PushBack(&h.place)
		h.mark = time.Now()
	}
	more := bytes - h.parts[part]
	h.waiting = true
	defer func() { h.waiting = false }()
	for wait && more > 0 && m.mustWait(h, more) {
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
		m.measure()
	}
}

// add adds to the sums. mu must be held.
func (m *Incomplete) add(h *Holding, bytes int) {
	m.used += bytes
	if m.clients[h.client] += bytes; m.clients[h.client] == 0 {
		delete(m.clients, h.client)
	}
}

// mustWait reports whether h has to wait for more memory. mu must be held.
func (m *Incomplete) mustWait(h *Holding, more int) bool {
	first := m.holders.Front()
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
func (m *Incomplete) counted() int {
	if first := m.holders.Front(); first != nil {
		return m.used - first.bytes
	}
	return m.used
}

// share returns what one client may use. mu must be held.
func (m *Incomplete) share() int { return m.max - m.max/sharePart }

// measure finds out whether memory is scarce. mu must be held.
func (m *Incomplete) measure() {
	if scarce := m.counted() >= m.share(); scarce != m.scarce.Load() {
		m.scarce.Store(scarce)
	}
}

// wait waits until memory is released, or for a quarter of patience, when a peer may
// have stalled. It returns false if the connection of h has ended. mu must be held;
// wait releases it while waiting.
func (m *Incomplete) wait(h *Holding) bool {
	_ = h.conn.Heard() // the peer is not silent: we do not read. On an error, gone is closed.
	err := m.changed.Sleep(&m.mu, nil, h.conn.Gone(), time.After(m.tuning.StallPatience/4))
	h.conn.Listening()
	return err != queue.ErrClosed && !h.evicted
}

// evict disconnects a peer that has stalled, so that another gets more memory: one of the
// same client if only that uses too much. It reports false if none has stalled. mu must be
// held.
func (m *Incomplete) evict(needy *Holding, more int) bool {
	all := m.counted()+more > m.max
	var worst *Holding
	most, stalled := 0, time.Now().Add(-m.tuning.StallPatience)
	for h := range m.holders.All() {
		dealing := h.conn.Dealing() // its reader is not waiting for the peer
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
	worst.conn.Close(ErrStalled)
	worst.evicted = true
	m.drop(worst)
	return true
}

// drop removes a holding from the list and its bytes from the sum. mu must be held.
func (m *Incomplete) drop(h *Holding) {
	if h.place.In(&m.holders) {
		h.place.Remove()
		m.add(h, -h.bytes)
		m.tell()
	}
}

// tell wakes the connections that wait for memory. mu must be held.
func (m *Incomplete) tell() {
	m.measure()
	m.changed.WakeAll()
}

// KeptUp records that n more bytes of an incomplete message have arrived. If it follows on
// a whole one, it began now. If messages before it have waited for the application
// (delivered), the peer has all its time again.
func (m *Incomplete) KeptUp(h *Holding, n int, whole, delivered bool) {
	h.arrived += n
	if h.arrived < h.bytes/stallPart && !delivered && !whole {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.mark, h.arrived = time.Now(), 0
	if whole && h.place.In(&m.holders) && h != m.holders.Back() {
		h.place.Remove()
		m.holders.PushBack(&h.place)
		m.tell()
	}
}

// Release releases everything that a connection holds.
func (m *Incomplete) Release(h *Holding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(h)
}

// Scarce reports whether all but 1/sharePart is in use.
func (m *Incomplete) Scarce() bool { return m.scarce.Load() }

// Status returns what is in use, and by how many connections.
func (m *Incomplete) Status() (bytes, holders int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used, m.holders.Len()
}

// NewHolding returns the holding of a connection, which holds nothing yet.
func NewHolding(c Conn, client *queue.Client) *Holding {
	h := &Holding{conn: c, client: client}
	h.place.Of = h
	return h
}

// Part returns a part of what the connection holds, and Bytes all of it. Only its reader
// may call them.
func (h *Holding) Part(part int) int { return h.parts[part] }

// Bytes is described at Part.
func (h *Holding) Bytes() int { return h.bytes }
