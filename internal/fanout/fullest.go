package fanout

import "time"

// reading records whether a peer with a long queue is reading. It is guarded by
// the publisher's mutex.
type reading struct {
	moved   int64     // bytes that its connection had taken at the last check
	pending int       // bytes that were queued for it at the last check
	looked  time.Time // time of the last check; zero if its queue was short
	until   time.Time // the peer counts as reading until then
}

// Fullest returns how full the fullest queue of a reading subscriber is, from 0
// for empty to 1 for Settings.Limits.Bytes or more.
//
// Queues that are less than a quarter full count as empty. Subscribers that
// take less than an eighth of the bytes sent to them are ignored, so that a
// publisher does not wait for one that has stopped reading. The cost of a call
// is proportional to the number of subscribers.
func (p *Publisher) Fullest() float64 {
	p.Lock()
	defer p.Unlock()
	limit, most := p.Limits.Bytes, 0
	now := time.Now()
	look := func(q *Subscriber) {
		if n := q.out.Status().Bytes; n < limit/readingFrom {
			q.reading = reading{}
		} else if q.reads(now) {
			most = max(most, n)
		}
	}
	for _, g := range p.all {
		for _, q := range g.apart {
			look(q)
		}
		if g.log != nil {
			for _, o := range g.log.BehindBy(limit / readingFrom) {
				look(subscriberOf(o))
			}
		}
	}
	return min(float64(most)/float64(limit), 1)
}

// reads reports whether a peer counts as reading. The mutex must be held.
func (q *Subscriber) reads(now time.Time) bool {
	r := &q.reading
	if q.link == nil || q.evicted {
		return false
	}
	first := r.looked.IsZero()
	if first || now.Sub(r.looked) >= readingWindow {
		moved, s := q.link.Taken(), q.out.Status()
		pending := s.Bytes + s.Taken
		if took := moved - r.moved; first {
			r.until = now.Add(readingCredit)
		} else if took > 0 && (readingShare-1)*took >= int64(pending-r.pending) {
			r.until = now.Add(readingPatience)
		}
		r.moved, r.pending, r.looked = moved, pending, now
	}
	return now.Before(r.until)
}
