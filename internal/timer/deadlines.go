package timer

import (
	"sync"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// Deadlines holds the deadline of each key whose latest update had a time to live. A
// record has only the time to live, which counts from when the update was made. A server
// needs the deadline to delete the key and for snapshots, and a client for the
// application.
//
// There is at most one deadline for each live key. A deletion removes it. An update
// without a time to live leaves it, with an older sequence than the record has, and it is
// then ignored. The zero value is empty and ready to use. Safe for concurrent use; a nil
// *Deadlines is empty.
type Deadlines struct {
	mu    sync.Mutex
	wheel wheel
	grace grace

	// ended has the keys whose deadline is over and which are not deleted yet, with the
	// sequence of the update that set it.
	ended map[uint64]int64
}

// grace is the time that clients have to come back after a server has become active, or
// goes on after it did not run for a while: see [Deadlines.Spare].
type grace struct {
	last int64 // it is for keys whose latest update is not after this sequence
	end  time.Duration
}

func (g grace) spares(seq int64, now time.Duration) bool { return seq <= g.last && now < g.end }

// Len returns the number of deadlines.
func (d *Deadlines) Len() int {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wheel.len()
}

// Apply sets and removes the deadlines of the keys of a batch of updates that was made at
// a time on the clock. The sequence of the first update is given, or 0 if each update has
// its own in it. The updates may arrive in any order: of two of one key, the one with the
// higher sequence counts. Apply reports whether there was no deadline before and now there
// is one.
func (d *Deadlines) Apply(wire []byte, spans []buf.Span, first int64, at time.Duration) (begun bool) {
	var flags uint64
	for i := range spans {
		flags |= spans[i].Tag
	}
	if flags&kvmsg.TagFlags == 0 || d == nil {
		return false // as most batches
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	empty := d.wheel.len() == 0
	for i, s := range spans {
		if s.Tag&kvmsg.TagFlags == 0 {
			continue
		}
		r := kvmsg.Record(wire[s.Start:s.End])
		hash, seq := s.Tag&^kvmsg.TagFlags, first+int64(i)
		if first == 0 {
			seq = r.Seq()
		}
		if s.Tag&kvmsg.TagDelete != 0 {
			d.remove(hash, seq)
		} else if ttl := kvmsg.TTLOf(r.Props()); ttl > 0 {
			d.set(hash, seq, at+ttl, at)
		}
	}
	return empty && d.wheel.len() > 0
}

// Set sets the deadline of the key with a hash, which the update with a sequence has given
// it, unless a later one has set another.
func (d *Deadlines) Set(hash uint64, seq int64, deadline time.Duration) {
	now := Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(hash, seq, deadline, now)
}

// set is Set at a time that is not in the future. mu must be held.
func (d *Deadlines) set(hash uint64, seq int64, deadline, now time.Duration) {
	if known := d.wheel.find(hash); known == nil || known.seq <= seq {
		d.drop(hash, seq)
		d.wheel.add(hash, seq, deadline, now)
	}
}

// drop forgets that the time of a key has ended, unless an update after seq set it. mu must
// be held.
func (d *Deadlines) drop(hash uint64, seq int64) {
	if len(d.ended) == 0 {
		return
	}
	if of, ok := d.ended[hash]; ok && of <= seq {
		if delete(d.ended, hash); len(d.ended) == 0 {
			d.ended = nil // a Go map does not shrink
		}
	}
}

// Remove removes the deadline of a key, unless an update after seq set it.
func (d *Deadlines) Remove(hash uint64, seq int64) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(hash, seq)
}

// remove is Remove with mu held.
func (d *Deadlines) remove(hash uint64, seq int64) {
	if known := d.wheel.find(hash); known != nil && known.seq <= seq {
		d.wheel.remove(hash)
	}
	d.drop(hash, seq)
}

// Remaining returns the remaining time to live of the key of r: 1ns once it is over, and 0
// if r has no time to live. For a superseded record it returns the time that r was given.
func (d *Deadlines) Remaining(r kvmsg.Record) time.Duration {
	props := r.Props()
	if len(props) == 0 {
		return 0
	}
	ttl := kvmsg.TTLOf(props)
	if ttl == 0 || d == nil {
		return ttl
	}
	d.mu.Lock()
	known := d.wheel.find(kvmsg.HashKey(r.Key()))
	if known == nil || known.seq != r.Seq() {
		if of, ok := d.ended[kvmsg.HashKey(r.Key())]; ok && of == r.Seq() {
			ttl = 1
		}
		d.mu.Unlock()
		return ttl
	}
	end := known.deadline
	if known.seq <= d.grace.last {
		end = max(end, d.grace.end)
	}
	d.mu.Unlock()
	return max(end-Now(), 1)
}

// Expire ends the deadlines up to now and calls expired for each, with the sequence of
// the update that set it: later updates of the key may not have had a time to live, and then
// expired must return false. Otherwise the key has no time left until it is deleted, or, if
// expired says until when, it has time until then after all. Expire
// stops after some steps, a step being a deadline removed or moved within the wheel, and then
// returns true. expired must not call methods of d.
//
// Keys that the grace spares get its end as their deadline.
func (d *Deadlines) Expire(now time.Duration, steps int, expired func(hash uint64, seq int64) (over bool, until time.Duration)) (more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wheel.advance(now, steps, func(hash uint64, seq int64) {
		if d.grace.spares(seq, now) {
			d.wheel.add(hash, seq, d.grace.end, now)
			return
		}
		switch over, until := expired(hash, seq); {
		case until > 0:
			d.wheel.add(hash, seq, until, now)
		case over:
			if d.ended == nil {
				d.ended = map[uint64]int64{}
			}
			d.ended[hash] = seq
		}
	})
}

// Spare begins a grace of a given length for the keys of all updates up to a sequence:
// none of them expires before its end. A negative length means no grace. The longest time
// to live is the longest grace, because its end becomes the time to live of keys.
//
// The owner of a key could not refresh it while there was no server, and a client needs
// some time to notice that there is one again and to fetch a snapshot. The deadlines
// themselves are not changed, so beginning a grace costs the same for any number of keys.
func (d *Deadlines) Spare(last int64, length time.Duration) {
	now := Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.grace = grace{last, now + min(max(length, 0), kvmsg.MaxTTL)}
}

// Spared returns the end of the last grace, and the sequence up to which it is for updates. A
// grace of no length ends when it begins.
func (d *Deadlines) Spared() (last int64, end time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.grace.last, d.grace.end
}

// Deadline returns the deadline of a key that the update with a sequence has given it, if there is one.
func (d *Deadlines) Deadline(hash uint64, seq int64) (at time.Duration, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.wheel.find(hash)
	if known == nil || known.seq != seq {
		return 0, false
	}
	return known.deadline, true
}

// Renew sets the deadline of a key that the update with a sequence has given one that is not
// over, and reports whether there is one. It does not shorten the time.
func (d *Deadlines) Renew(hash uint64, seq int64, deadline time.Duration) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.wheel.find(hash)
	if known == nil || known.seq != seq {
		return false
	}
	if deadline > known.deadline {
		d.wheel.add(hash, seq, deadline, Now())
	}
	return true
}
