package lastvalue

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/sockets"
)

// joiner is a subscriber that is being sent last values. It has at most one parcel
// of them under way, and is sent the next one when that has been written. So
// one that does not read holds a parcel, and one that asks for everything costs
// the others little at a time. Guarded by Cache.mu.
type joiner struct {
	cache  *Cache
	peer   *sockets.Peer
	wants  list.List // of *want, in the order of the subscriptions
	of     map[string]*list.Element
	flying bool // a parcel is under way, or the joiner waits for another turn
	gone   bool // the subscriber has disconnected
}

// want is a subscription whose last values are to be sent. The subscription itself
// is in force: messages after update reach the subscriber as they come.
type want struct {
	prefix string
	update uint64 // the last message at the time of the subscription
	next   string // the topic to go on with
}

const (
	// parcelBytes is how large a parcel gets, but for its last message.
	parcelBytes = 64 << 10
	// parcelTopics bounds the prefixes and topics that are looked at for a parcel,
	// so that publishing is not held up for long.
	parcelTopics = 4096
	// keepScratch is the largest scratch buffer that is kept.
	keepScratch = 1 << 20
)

// parcel is last values lent to a subscriber's queue.
type parcel struct {
	joiner *joiner
	wire   []byte
	refs   atomic.Int32
}

func (p *parcel) Retain() { p.refs.Add(1) }

// Release says, the last time, that the parcel was written or never will be. It may
// be called from any goroutine, also with Cache.mu held.
func (p *parcel) Release() {
	if p.refs.Add(-1) == 0 {
		p.joiner.cache.landed.add(p.joiner)
	}
}

// landed lists the joiners that can be sent the next parcel.
type landed struct {
	mu   sync.Mutex // a leaf
	list []*joiner
	wake chan struct{} // capacity 1
}

func (l *landed) add(j *joiner) {
	l.mu.Lock()
	l.list = append(l.list, j)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// drain returns the list and replaces it by an empty one.
func (l *landed) drain(empty []*joiner) []*joiner {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.list
	l.list = empty
	return full
}

// listen takes subscriptions until the cache is closed.
func (c *Cache) listen() {
	var b sockets.Batch
	defer b.Release()
	for c.ctx.Err() == nil && c.out.RecvBatch(c.ctx, &b) == nil { // see forward
		c.obey(&b)
	}
}

// obey puts a subscriber's subscriptions, and their ends, in force.
func (c *Cache) obey(b *sockets.Batch) {
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
			_ = c.out.UnsubscribePeer(peer, topic) // the peer may have gone
			if j != nil {
				j.forget(topic)
			}
		default:
			topic := string(body[1:])
			if c.out.SubscribePeer(peer, topic) != nil {
				continue // gone: its topics are ended next
			}
			c.stats.Subscriptions++
			if j == nil {
				j = &joiner{cache: c, peer: peer, of: map[string]*list.Element{}}
				c.joiners[peer] = j
			}
			j.want(topic, c.values.updates)
		}
	}
	if j != nil {
		c.advance(j)
	}
}

// want notes that the last values of a prefix are to be sent, as they are now.
// If they are being sent already, that begins anew.
func (j *joiner) want(prefix string, update uint64) {
	j.forget(prefix)
	j.of[prefix] = j.wants.PushBack(&want{prefix: prefix, update: update})
}

func (j *joiner) forget(prefix string) {
	if e := j.of[prefix]; e != nil {
		j.wants.Remove(e)
		delete(j.of, prefix)
	}
}

// advance sends a joiner its next parcel, unless one is under way.
func (c *Cache) advance(j *joiner) {
	if j.flying || j.gone {
		return
	}
	messages := c.fill(j)
	switch {
	case messages > 0:
		p := &parcel{joiner: j, wire: slices.Clone(c.scratch)}
		p.refs.Store(1)
		j.flying = true
		if c.out.SendWireTo(j.peer, p.wire, messages, p) != nil {
			j.gone = true
			delete(c.joiners, j.peer)
		} else {
			c.stats.Replayed += uint64(messages)
		}
		p.Release()
	case j.wants.Len() > 0: // everything that was looked at has been sent since
		j.flying = true
		c.landed.add(j)
	default:
		delete(c.joiners, j.peer)
	}
	if cap(c.scratch) > keepScratch {
		c.scratch = nil
	}
}

// fill makes the next parcel of a joiner, in c.scratch, and returns the number of
// its messages.
func (c *Cache) fill(j *joiner) (messages int) {
	c.scratch = c.scratch[:0]
	c.values.expire(c.now())
	seen := 0
	for e := j.wants.Front(); e != nil && seen < parcelTopics; e = j.wants.Front() {
		w := e.Value.(*want)
		seen++ // a prefix costs a search, even if no topic begins with it
		full := false
		c.values.ascend(w.prefix, w.next, func(t *entry) bool {
			if full = seen == parcelTopics || len(c.scratch) >= parcelBytes; full {
				w.next = t.topic
				return false
			}
			seen++
			if t.update <= w.update { // later ones came as live messages
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

// deliver sends the joiners their next parcels until the cache is closed. At each
// interval it looks for messages that are too old.
func (c *Cache) deliver(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var list []*joiner
	for {
		select {
		case <-c.landed.wake:
			list = c.landed.drain(list[:0])
			for i, j := range list {
				c.mu.Lock()
				j.flying = false
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
