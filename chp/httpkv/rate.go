package httpkv

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// rates bounds the requests of each address: so many a second, and as many at once (GCRA).
type rates struct {
	each time.Duration // between two requests; 0 is no bound

	mu    sync.Mutex
	due   map[netip.Addr]time.Time // when its requests would have come at the allowed rate
	swept time.Time
}

// admit reports whether a request of an address is within its rate.
func (r *rates) admit(a netip.Addr, now time.Time) bool {
	if r.each == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due == nil {
		r.due = map[netip.Addr]time.Time{}
	}
	due, known := r.due[a]
	if !known && len(r.due) >= maxRates {
		if now.Sub(r.swept) > time.Second { // not for each request
			r.swept = now
			for other, due := range r.due {
				if !due.After(now) {
					delete(r.due, other)
				}
			}
		}
		if len(r.due) >= maxRates {
			a = netip.Addr{} // all others share one
			due = r.due[a]
		}
	}
	if due.Sub(now) > time.Second-r.each {
		return false
	}
	if due.Before(now) {
		due = now
	}
	r.due[a] = due.Add(r.each)
	return true
}

// streams counts streams, of all and of each address.
type streams struct {
	most, each int

	mu   sync.Mutex
	open int
	of   map[netip.Addr]int
}

func (s *streams) begin(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.most || s.of[a] >= s.each {
		return false
	}
	if s.of == nil {
		s.of = map[netip.Addr]int{}
	}
	s.open++
	s.of[a]++
	return true
}

func (s *streams) end(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[a]--; s.of[a] == 0 {
		delete(s.of, a)
	}
}

// budget is memory that requests share.
type budget struct{ used atomic.Int64 }

func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > maxBodies {
		b.give(n)
		return false
	}
	return true
}

func (b *budget) give(n int) { b.used.Add(-int64(n)) }
