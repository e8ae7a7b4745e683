package order

import (
	"context"
	"time"

	"clustermap/internal/wake"
)

// Pacer delays batches of updates or deletions before they are published, so that
// subscribers can keep up. Only one goroutine at a time uses it.
//
// While no queue is more than half full, there is no delay. Beyond that the rate
// decreases as the fullest queue fills, down to slowest when it is full.
type Pacer struct {
	slowest int            // bytes a second; negative: never wait
	fullest func() float64 // see sockets.Pub.Fullest

	level  float64 // fill level of the fullest queue at the last check
	unseen int     // bytes since the last check
	looked time.Time
	debt   time.Duration // delay that is still due
}

// NewPacer returns a pacer that slows down to slowest bytes a second, or never if that is
// negative; fullest returns how full the fullest queue is, from 0 to 1.
func NewPacer(slowest int, fullest func() float64) *Pacer {
	return &Pacer{slowest: slowest, fullest: fullest}
}

// Wait waits before a batch of size bytes if subscribers need it. It returns false if
// the context ended meanwhile.
func (p *Pacer) Wait(ctx context.Context, size int) bool {
	for d := p.next(size, time.Now()); d > 0; d = p.next(0, time.Now()) {
		if !wake.Pause(ctx, d) {
			return false
		}
	}
	return true
}

// next returns the delay before a batch of size bytes. After the delay the caller calls
// it again with size 0, until it returns 0.
func (p *Pacer) next(size int, now time.Time) time.Duration {
	if p.slowest < 0 {
		return 0
	}
	p.unseen += size
	if since := now.Sub(p.looked); p.unseen >= PacerLook && since >= pacerRest || p.level > PaceFrom && since >= pacerMost {
		p.level, p.unseen, p.looked = p.fullest(), 0, now
	}
	if p.level <= PaceFrom {
		p.debt = 0
		return 0
	}
	share := min((p.level-PaceFrom)/(1-PaceFrom), 1)
	p.debt += time.Duration(float64(size) / float64(p.slowest) * share * float64(time.Second))
	if p.debt < pacerLeast {
		return 0
	}
	wait := min(p.debt, pacerMost)
	p.debt -= wait
	return wait
}
