package snapshot

import (
	"sync/atomic"
	"time"
)

// Took is how long each of several events has taken: numbers of those up to each of some bounds.
type Took struct {
	counts [len(tookBounds) + 1]atomic.Uint64
	sum    atomic.Int64 // in nanoseconds
}

// Times is what a Took has counted.
type Times struct {
	Bounds []time.Duration // rising
	Counts []uint64        // of events up to each bound and above the one before; the last one has no bound
	Sum    time.Duration
}

func (t *Took) add(d time.Duration) {
	i := 0
	for i < len(tookBounds) && d > tookBounds[i] {
		i++
	}
	t.counts[i].Add(1)
	t.sum.Add(int64(d))
}

// Times returns what was counted so far.
func (t *Took) Times() Times {
	all := Times{Bounds: tookBounds[:], Sum: time.Duration(t.sum.Load())}
	for i := range t.counts {
		all.Counts = append(all.Counts, t.counts[i].Load())
	}
	return all
}

// tookBounds are those of snapshots: from a key's to one of gigabytes over a slow network.
var tookBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}
