package sockets

import "time"

// reading records whether a peer with a long queue reads. Guarded by the
// subscriptions' mutex.
type reading struct {
	moved   int64     // bytes that its connection had taken at the last look
	pending int       // bytes that were queued for it then
	looked  time.Time // when that was; zero if its queue was short
	until   time.Time // until when the peer counts as reading
}

const (
	// readingWindow is the least time between two looks at a peer.
	readingWindow = 20 * time.Millisecond
	// readingPatience is how long a peer counts as reading after it was seen to
	// read, and readingCredit how long after its queue was first seen to be long.
	readingPatience = time.Second
	readingCredit   = 100 * time.Millisecond
	// A peer reads if it takes at least 1/readingShare of what it is sent.
	readingShare = 8
	// A queue is long from 1/readingFrom of its bound.
	readingFrom = 4
)

// Fullest returns how full the fullest queue is among those of the subscribers that
// read: from 0 for empty to 1 for Options.SendHWMBytes bytes or more. Queues less
// than a quarter full count as empty. A subscriber that takes less than an eighth
// of what it is sent does not count, so that a publisher that slows down by this
// value does not wait for one that has stopped reading. The cost of a call grows
// with the number of subscribers.
func (p *publisher) Fullest() float64 {
	p.subs.Lock()
	defer p.subs.Unlock()
	limit, most := p.opts.SendHWMBytes, 0
	now := time.Now()
	look := func(q *pipe) {
		if n := q.out.pending(false); n < limit/readingFrom {
			q.sub.reading = reading{}
		} else if q.reads(now) {
			most = max(most, n)
		}
	}
	for _, g := range p.subs.all {
		for _, q := range g.apart {
			look(q)
		}
		if g.log != nil {
			g.log.behindBy(limit/readingFrom, look)
		}
	}
	return min(float64(most)/float64(limit), 1)
}

// reads reports whether a peer counts as reading. The mutex of the subscriptions
// must be held.
func (q *pipe) reads(now time.Time) bool {
	r := &q.sub.reading
	peer := q.peer.Load()
	if peer == nil || q.sub.evicted {
		return false
	}
	first := r.looked.IsZero()
	if first || now.Sub(r.looked) >= readingWindow {
		moved, pending := peer.taken(), q.out.pending(true)
		if took := moved - r.moved; first {
			r.until = now.Add(readingCredit)
		} else if took > 0 && (readingShare-1)*took >= int64(pending-r.pending) {
			r.until = now.Add(readingPatience)
		}
		r.moved, r.pending, r.looked = moved, pending, now
	}
	return now.Before(r.until)
}

// taken returns how many queued bytes the system has taken from the connection or,
// over inproc, the other socket.
func (p *Peer) taken() int64 {
	if p.far != nil {
		return int64(p.bytesOut.Load())
	}
	return p.conn.stream.moved.Load()
}

// behindBy calls f for each follower that has at least the given number of bytes to
// read. f must not wait.
func (l *wirelog) behindBy(bytes int, f func(*pipe)) {
	l.mu.Lock()
	var behind []*pipe
	for o := l.slowest; o != nil && l.tail.bytes-o.follows.at.bytes >= int64(bytes); o = o.follows.faster {
		behind = append(behind, o.follows.pipe)
	}
	l.mu.Unlock()
	for _, q := range behind {
		f(q)
	}
}
