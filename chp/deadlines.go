package chp

import (
	"sync"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// deadlines holds the deadline of each key whose latest update had a time to live. A
// record has only the time to live, which counts from the record's arrival. A server
// needs the deadline for snapshots, and a client for the application.
//
// There is at most one entry per live key. A deletion removes the entry. An update
// without a time to live leaves it, with an older sequence than the record has, and it
// is then ignored. Safe for concurrent use; a nil *deadlines is empty.
type deadlines struct {
	mu     sync.Mutex
	byHash map[uint64]deadline
	most   int // largest size since byHash was made: a Go map does not shrink
	grace  grace
}

// keepDeadlines is the size up to which an empty table keeps its memory.
const keepDeadlines = 1024

// deadline is the deadline that the update with sequence seq set.
type deadline struct {
	seq int64
	end time.Duration // on clock
}

// clockStart is the origin of clock.
var clockStart = time.Now()

// clock is the monotonic clock of deadlines.
func clock() time.Duration { return time.Since(clockStart) }

// timeOf returns the time at which clock was, or will be, at.
func timeOf(at time.Duration) time.Time { return time.Now().Add(at - clock()) }

// set records the deadline that the update with sequence seq sets.
func (d *deadlines) set(hash uint64, seq int64, end time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(hash, seq, end)
}

func (d *deadlines) put(hash uint64, seq int64, end time.Duration) {
	if d.byHash == nil {
		d.byHash = map[uint64]deadline{}
	}
	// A snapshot and the updates beside it arrive in any order.
	if known, ok := d.byHash[hash]; !ok || known.seq <= seq {
		d.byHash[hash] = deadline{seq, end}
		d.most = max(d.most, len(d.byHash))
	}
}

// remove removes the deadline of a key, unless an update after seq set it.
func (d *deadlines) remove(hash uint64, seq int64) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(hash, seq)
}

// drop is remove with mu held.
func (d *deadlines) drop(hash uint64, seq int64) {
	if known, ok := d.byHash[hash]; ok && known.seq <= seq {
		delete(d.byHash, hash)
		if len(d.byHash) == 0 && d.most > keepDeadlines {
			d.byHash, d.most = nil, 0
		}
	}
}

// follow records the deadlines of a batch of messages from a server, counted from now.
func (d *deadlines) follow(wire []byte, spans []sockets.Span) {
	if d == nil {
		return
	}
	locked := false
	var now time.Duration
	for _, s := range spans {
		if s.Tag&kvmsg.TagFlags == 0 {
			continue
		}
		if !locked {
			locked = true
			d.mu.Lock()
			defer d.mu.Unlock()
			now = clock()
		}
		if s.Tag&kvmsg.TagDelete != 0 {
			if len(d.byHash) > 0 {
				d.drop(s.Tag&^kvmsg.TagFlags, kvmsg.Record(wire[s.Start:s.End]).Seq())
			}
			continue
		}
		r := kvmsg.Record(wire[s.Start:s.End])
		if ttl := kvmsg.TTLOf(r.Props()); ttl > 0 {
			d.put(s.Tag&^kvmsg.TagFlags, r.Seq(), now+ttl)
		}
	}
}

// remaining returns the remaining time to live of the key of r: 1ns once it is over,
// and 0 if r has no time to live. For a superseded record it returns the time that r
// was given.
func (d *deadlines) remaining(r kvmsg.Record) time.Duration {
	props := r.Props()
	if len(props) == 0 {
		return 0
	}
	ttl := kvmsg.TTLOf(props)
	if ttl == 0 || d == nil {
		return ttl
	}
	d.mu.Lock()
	known, ok := d.byHash[kvmsg.HashKey(r.Key())]
	end := known.end
	if known.seq <= d.grace.last {
		end = max(end, d.grace.end)
	}
	d.mu.Unlock()
	if !ok || known.seq != r.Seq() {
		return ttl
	}
	return max(end-clock(), 1)
}

// replace replaces d by other, which must not be used any more.
func (d *deadlines) replace(other *deadlines) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byHash, d.most, d.grace = other.byHash, other.most, other.grace
}
