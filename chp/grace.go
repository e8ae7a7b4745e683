package chp

import (
	"time"

	"clustermap/internal/kvmsg"
)

// grace is the time that clients have to come back after a server has become active, with
// the map of its log, of Preload, or of the other server of its pair, or goes on after it
// did not run for a while. No key that the
// server had then expires before the end. The owner of a key could not refresh it
// while there was no server, and a client needs some time to notice that there is one
// again and to fetch a snapshot.
//
// The deadlines themselves are not changed, so beginning a grace costs the same for any
// number of keys: see deadlines.remaining and sequencer.expire. The zero value means no
// grace.
type grace struct {
	last int64         // it is for keys whose latest update is not after this sequence
	end  time.Duration // on clock
}

// spares reports whether an update's key must not expire yet.
func (g grace) spares(seq int64, now time.Duration) bool { return seq <= g.last && now < g.end }

// begin begins a grace of a given length for the keys of all updates up to a sequence. A
// negative length means no grace. The longest time to live is the longest grace, because
// the end of the grace becomes the time to live of keys.
func (d *deadlines) begin(last int64, length time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.grace = grace{}
	if length > 0 {
		d.grace = grace{last, clock() + min(length, kvmsg.MaxTTL)}
	}
}

// graced returns the present grace.
func (d *deadlines) graced() grace {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.grace
}
