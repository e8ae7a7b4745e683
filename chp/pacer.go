package chp

import (
	"context"
	"time"
)

// pacer delays batches of updates or deletions before they are published, so that
// subscribers can keep up. Only one goroutine at a time uses it.
//
// While no queue is more than half full, there is no delay. Beyond that the rate
// decreases as the fullest queue fills, down to slowest when it is full.
type pacer struct {
	slowest int            // bytes a second; negative: never wait
	fullest func() float64 // see sockets.Pub.Fullest

	level  float64 // fill level of the fullest queue at the last check
	unseen int     // bytes since the last check
	looked time.Time
	debt   time.Duration // delay that is still due
}

const (
	// pacerLook is after how many bytes the queues are checked, and pacerRest the
	// shortest time between two checks.
	pacerLook = 256 << 10
	pacerRest = 2 * time.Millisecond
	// paceFrom is the fill level from which batches are delayed.
	paceFrom = 0.5
	// pacerLeast is the shortest delay worth a timer, and pacerMost the longest between
	// two checks.
	pacerLeast = time.Millisecond
	pacerMost  = 100 * time.Millisecond
)

func newPacer(slowest int, fullest func() float64) *pacer {
	return &pacer{slowest: slowest, fullest: fullest}
}

// wait waits before a batch of size bytes if subscribers need it. It returns false if
// the context ended meanwhile.
func (p *pacer) wait(ctx context.Context, size int) bool {
	for d := p.next(size, time.Now()); d > 0; d = p.next(0, time.Now()) {
		if !pause(ctx, d) {
			return false
		}
	}
	return true
}

// next returns the delay before a batch of size bytes. After the delay the caller calls
// it again with size 0, until it returns 0.
func (p *pacer) next(size int, now time.Time) time.Duration {
	if p.slowest < 0 {
		return 0
	}
	p.unseen += size
	if since := now.Sub(p.looked); p.unseen >= pacerLook && since >= pacerRest || p.level > paceFrom && since >= pacerMost {
		p.level, p.unseen, p.looked = p.fullest(), 0, now
	}
	if p.level <= paceFrom {
		p.debt = 0
		return 0
	}
	share := min((p.level-paceFrom)/(1-paceFrom), 1)
	p.debt += time.Duration(float64(size) / float64(p.slowest) * share * float64(time.Second))
	if p.debt < pacerLeast {
		return 0
	}
	wait := min(p.debt, pacerMost)
	p.debt -= wait
	return wait
}

// pause waits for d. It returns false if the context ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
