package sockets

import "time"

// reading is what a publisher has seen of a peer that has a lot queued: whether it
// reads what it is sent. Guarded by the subscriptions' mutex.
type reading struct {
	moved   int64     // bytes that its connection had taken at the last look
	pending int       // bytes that were queued for it
	looked  time.Time // zero: it had not much queued
	until   time.Time // it counts as one that reads
}

const (
	// readingWindow is the shortest time in which it is seen whether a peer reads.
	readingWindow = 20 * time.Millisecond
	// readingPatience is for how long a peer that has read is held to go on, and
	// readingCredit for how long one is held to read of which nothing is known yet.
	readingPatience = time.Second
	readingCredit   = 100 * time.Millisecond
	// readingShare is the part of what it is sent that a peer must take.
	readingShare = 8
	// readingFrom is the part of the bound from which a queue is looked at.
	readingFrom = 4
)

// Fullest returns how full the queue of a subscriber is, from 0 for empty to 1 for
// Options.SendHWMOctets or more: of the one with the fullest queue among those that
// read what they are sent, if not fast enough. Queues less than a quarter full count
// as empty. Subscribers that take less than an eighth of what they are sent do not
// count: who publishes more slowly for their sake would wait for those who do not
// come. It takes a look at every queue.
func (p *publisher) Fullest() float64 {
	p.subs.Lock()
	defer p.subs.Unlock()
	limit, most := p.opts.SendHWMOctets, 0
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

// reads says whether a peer reads what it is sent. The mutex of the subscriptions is
// held.
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

// taken returns how many bytes the connection has taken of what was queued. Over
// inproc there is no system that takes them, but the other socket.
func (p *Peer) taken() int64 {
	if p.far != nil {
		return int64(p.octetsOut.Load())
	}
	return p.conn.stream.moved.Load()
}

// behindBy calls f for the followers that have so many bytes to read, or more. f
// must not wait.
func (l *wirelog) behindBy(octets int, f func(*pipe)) {
	l.mu.Lock()
	var behind []*pipe
	for o := l.slowest; o != nil && l.tail.octets-o.follows.at.octets >= int64(octets); o = o.follows.faster {
		behind = append(behind, o.follows.pipe)
	}
	l.mu.Unlock()
	for _, q := range behind {
		f(q)
	}
}
