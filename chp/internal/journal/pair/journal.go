package pair

import (
	"errors"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/state"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
)

// Journal commits what the local journal has committed and, while updates wait for it, the
// other server has acknowledged. It is a [journal.Journal]; all of its own methods are for
// one goroutine at a time, with the owner's mutex.
type Journal struct {
	journal.Journal // the local one

	acks  int // number of servers that must have an update
	looks int // for which the other server may be slow
	tail  tail
	to    *Follower // nil if the other server does not follow
	waits bool      // updates wait for it
	acked int64     // the most that it has acknowledged of this map, in whatever connection
}

var _ journal.Journal = (*Journal)(nil)

// errAhead means that the other server acknowledges what it was not sent.
var errAhead = errors.New("chp: the other server acknowledges updates that it was not sent")

// New returns a journal on top of a local one. acks is the number of servers that must have
// an update, this one included. looks is the number of looks after which updates wait for the
// other server though it stays behind.
func New(local journal.Journal, acks, looks int) *Journal {
	return &Journal{Journal: local, acks: acks, looks: looks, tail: tail{size: tailBytes}}
}

// Bound bounds the batches that are kept for the other server, in bytes; by default they are
// 64 MiB.
func (j *Journal) Bound(bytes int) { j.tail.size = bytes }

// AtOnce reports whether updates wait for nothing.
func (j *Journal) AtOnce() bool { return !j.waits && j.Journal.AtOnce() }

// Append appends a batch to the local journal, and keeps it for the other server.
func (j *Journal) Append(h state.Head, pieces []store.Piece, held int) journal.Index {
	i := j.Journal.Append(h, pieces, held)
	j.tail.add(h, pieces, held)
	return i
}

// Committed reports whether the local journal has committed a batch, and the other server has
// it if updates wait for that.
func (j *Journal) Committed(i journal.Index, last int64) bool {
	return j.Journal.Committed(i, last) && (!j.waits || last <= j.acked || mutate.PublishAlone)
}

// Follow replaces the follower by one that has said what it has: whether its map has this one's
// identity, and the last update. newest is the last update here. If the tail does not continue
// that, the new follower needs the map.
func (j *Journal) Follow(same bool, theirs, newest state.Reign) *Follower {
	f := &Follower{Have: -1}
	position, ok := j.tail.behind(theirs.ID, theirs.Last)
	if !ok {
		position, ok = j.tail.end(), theirs == newest
	}
	if ok && same {
		f.position, f.Sent = position, theirs.Last
	} else {
		f.needsMap()
	}
	if j.to != nil {
		f.Idle = j.to.Idle // the same server, which may only connect again and again
	}
	j.to, j.tail.most = f, 0
	return f
}

// Next puts what a follower is to be sent next into part, which must be empty. If there is
// nothing, more is closed when there is. If there is neither, the follower needs the map, which
// Copy begins, or is no longer live and too far behind.
func (j *Journal) Next(f *Follower, part *Part) (more <-chan struct{}) {
	if f.NeedsMap() {
		return nil
	}
	if !j.tail.read(f.position, portion, part) {
		f.needsMap()
		return nil
	}
	n := part.Len()
	if n == 0 {
		more = j.tail.more()
	} else {
		f.Sent = part.batches[n-1].Last()
	}
	f.position += uint64(n)
	if j.tail.most > 0 && j.to == f {
		j.tail.caughtUp(f.position)
	}
	return more
}

// Copy begins a copy of the map for a follower that needs it. last is the sequence of the last update
// in the map, and held the number of batches that are not in it and follow it. Until the follower
// has caught up, up to most bytes of batches are kept for it.
func (j *Journal) Copy(f *Follower, last int64, held, most int) {
	f.position = j.tail.end() - uint64(held)
	f.Sent, f.base = last, last
	if j.to == f {
		j.tail.keepFrom(f.position, most)
	}
}

// Acknowledged records that a follower has everything up to a sequence; last is that of the
// last update here. More batches may be committed then. begins reports that updates wait for the
// follower from now on.
func (j *Journal) Acknowledged(f *Follower, sequence, last int64) (begins bool, err error) {
	switch {
	case j.to != f || sequence < f.Have:
		return false, nil
	case sequence > f.Sent:
		return false, errAhead
	}
	if f.Have = sequence; f.Live() && f.HasMap() {
		f.Progress = ProgressTail
	}
	if sequence > j.acked {
		// Only this is progress: updates must not wait forever for a follower that
		// reconnects again and again and acknowledges nothing.
		j.acked, f.Idle = sequence, 0
	}
	if !j.waits && j.acks > 1 && f.Progress == ProgressTail && (last-sequence < CaughtUp || f.behind > j.looks) {
		j.waits, f.behind, begins = true, 0, true
	}
	return begins, nil
}

// Look looks at the follower. passed reports that the interval between looks has passed, and
// heard is false while the silence may be due to this server: then its time does not run.
func (j *Journal) Look(last int64, passed, heard bool) {
	f := j.to
	switch {
	case f == nil:
		return
	case f.Live() && f.Have >= last: // updates wait for the local journal only
		f.Idle = 0
	case passed && heard:
		f.Idle++
	}
	if passed && f.Progress == ProgressTail && !j.waits {
		f.behind++
	}
}

// Leave records that a follower has announced its end.
func (j *Journal) Leave(f *Follower) { f.Progress = ProgressLeft }

// Lose records that the connection of a follower has ended, or is about to.
func (j *Journal) Lose(f *Follower) {
	if f.Progress != ProgressLeft {
		f.Progress = ProgressLost
	}
	if j.to == f {
		j.tail.most = 0
	}
}

// Alone makes updates commit without the other server, until it has caught up.
func (j *Journal) Alone() { j.waits = false }

// Yield ends all that concerns the other server: this one is no longer active.
func (j *Journal) Yield() { j.to, j.waits, j.tail.most = nil, false, 0 }

// Restored is called when the map was replaced: no batch from before continues it, and what was
// acknowledged of the map before says nothing about this one, whose sequences may be lower.
func (j *Journal) Restored() {
	j.tail.clear()
	j.acked = 0
}

// Follower returns the follower, or nil.
func (j *Journal) Follower() *Follower { return j.to }

// Waits reports whether updates wait for the other server.
func (j *Journal) Waits() bool { return j.waits }

// Near reports whether a follower lacks little: updates wait for it or, if they need not, it
// was sent all but some bytes.
func (j *Journal) Near(f *Follower, bytes int) bool {
	return j.waits || j.acks == 1 && j.tail.lag(f.position) <= bytes
}

// Fill returns which part of what can be kept for the other server was not sent to it yet, from
// 0 to 1.
func (j *Journal) Fill() float64 {
	if j.to == nil || !j.to.Live() {
		return 0
	}
	return j.tail.fill(j.to.position)
}

// Kept returns the bytes of the batches that are kept, and their bound now.
func (j *Journal) Kept() (bytes, most int) { return j.tail.bytes, max(j.tail.size, j.tail.most) }
