package lastvalue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/list"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// joiner is a subscriber that is being sent last values. At most one chunk of them is
// in its queue; the next one follows when that has been written. So a subscriber that
// does not read holds one chunk, and one with a large prefix delays the others only
// briefly. Guarded by Cache.mu.
type joiner struct {
	cache   *Cache
	peer    *sockets.Peer
	wants   list.List[want]  // in the order of the subscriptions
	of      map[string]*want // by prefix
	sending bool             // a chunk is in the queue, or the joiner is in Cache.ready
	gone    bool             // the subscriber has disconnected
}

// want is a subscription whose last values are being sent. The subscription is already
// active: the subscriber gets messages after update live.
type want struct {
	prefix string
	update uint64 // the last message at the time of the subscription
	next   string // the next topic
	place  list.Element[want]
}

// chunk has last values in a subscriber's queue.
type chunk struct {
	joiner *joiner
	wire   []byte
	refs   atomic.Int32
}

func (p *chunk) Retain() { p.refs.Add(1) }

// Release is called for the last time when the chunk was written or dropped. Any
// goroutine may call it, also with Cache.mu held.
func (p *chunk) Release() {
	if p.refs.Add(-1) == 0 {
		p.joiner.cache.ready.add(p.joiner)
	}
}

// ready lists the joiners that can be sent the next chunk.
type ready struct {
	mu   sync.Mutex // a leaf lock
	list []*joiner
	wake chan struct{} // capacity 1
}

func (l *ready) add(j *joiner) {
	l.mu.Lock()
	l.list = append(l.list, j)
	l.mu.Unlock()
	wake.Signal(l.wake)
}

// drain returns the list and replaces it with an empty one.
func (l *ready) drain(empty []*joiner) []*joiner {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.list
	l.list = empty
	return full
}

// listen receives subscriptions until the cache is closed.
func (c *Cache) listen() {
	var b sockets.Batch
	defer b.Release()
	for c.ctx.Err() == nil && c.out.RecvBatch(c.ctx, &b) == nil { // see forward
		c.handle(&b)
	}
}

// handle applies a subscriber's subscriptions and unsubscriptions.
func (c *Cache) handle(b *sockets.Batch) {
	peer := b.Peer()
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.joiners[peer]
	for i := range b.Len() {
		body, rest := b.Message(i).Next()
		switch {
		case len(rest) > 0 || len(body) == 0 || body[0] > 1:
			c.stats.Ignored++
		case body[0] == 0:
			topic := string(body[1:])
			_ = c.out.UnsubscribePeer(peer, topic) // fails if the peer has gone
			if j != nil {
				j.forget(topic)
			}
		default:
			topic := string(body[1:])
			if c.out.SubscribePeer(peer, topic) != nil {
				continue // the peer has gone; its unsubscriptions follow
			}
			c.stats.Subscriptions++
			if j == nil {
				j = &joiner{cache: c, peer: peer, of: map[string]*want{}}
				c.joiners[peer] = j
			}
			j.want(topic, c.values.updates)
		}
	}
	if j != nil {
		c.advance(j)
	}
}

// want queues the last values of a prefix. If they are already being sent, that starts
// again.
func (j *joiner) want(prefix string, update uint64) {
	j.forget(prefix)
	w := &want{prefix: prefix, update: update}
	w.place.Of = w
	j.wants.PushBack(&w.place)
	j.of[prefix] = w
}

func (j *joiner) forget(prefix string) {
	if w := j.of[prefix]; w != nil {
		w.place.Remove()
		delete(j.of, prefix)
	}
}

// advance sends a joiner its next chunk, unless one is in the queue.
func (c *Cache) advance(j *joiner) {
	if j.sending || j.gone {
		return
	}
	messages := c.fill(j)
	switch {
	case messages > 0:
		p := &chunk{joiner: j, wire: slices.Clone(c.scratch)}
		p.refs.Store(1)
		j.sending = true
		if hooks.SendTo(c.out, j.peer, p.wire, messages, p) != nil {
			j.gone = true
			delete(c.joiners, j.peer)
		} else {
			c.stats.Replayed += uint64(messages)
		}
		p.Release()
	case j.wants.Len() > 0: // all examined topics were updated since, and sent live
		j.sending = true
		c.ready.add(j)
	default:
		delete(c.joiners, j.peer)
	}
	if cap(c.scratch) > keepScratch {
		c.scratch = nil
	}
}

// fill builds a joiner's next chunk in c.scratch and returns the number of messages.
func (c *Cache) fill(j *joiner) (messages int) {
	c.scratch = c.scratch[:0]
	c.values.expire(c.now())
	seen := 0
	for w := j.wants.Front(); w != nil && seen < chunkTopics; w = j.wants.Front() {
		seen++ // a prefix costs a search even if no topic has it
		full := false
		c.values.ascend(w.prefix, w.next, func(t *entry) bool {
			if full = seen == chunkTopics || len(c.scratch) >= chunkBytes; full {
				w.next = t.topic
				return false
			}
			seen++
			if t.update <= w.update { // later ones were sent live
				c.scratch = c.values.append(c.scratch, []byte(t.topic))
				messages++
			}
			return true
		})
		if full {
			break
		}
		j.forget(w.prefix)
	}
	return messages
}

// deliver sends the joiners their next chunks until the cache is closed. At each
// interval it removes expired topics and frees memory.
func (c *Cache) deliver(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var list []*joiner
	for {
		select {
		case <-c.ready.wake:
			list = c.ready.drain(list[:0])
			for i, j := range list {
				c.mu.Lock()
				j.sending = false
				c.advance(j)
				c.mu.Unlock()
				list[i] = nil
			}
		case <-ticker.C:
			c.mu.Lock()
			c.values.expire(c.now())
			c.values.tidy()
			c.mu.Unlock()
		case <-c.ctx.Done():
			return
		}
	}
}
