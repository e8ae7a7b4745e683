package chp

import (
	"fmt"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/state"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
	"clustermap/sockets"
)

// ReplayProgress reports how much of its log a server has replayed.
type ReplayProgress struct {
	Updates         uint64        // replayed so far, those of the checkpoint included
	Bytes           uint64        // of the updates
	Elapsed         time.Duration // since the beginning
	Done            bool          // all is replayed
	commit.Replayed               // set when Done
}

// replayEvery is how often ServerOptions.OnReplay is called.
const replayEvery = 250 * time.Millisecond

// replay fills the map from the log before the server listens: keys and values,
// sequences, and deadlines. A key whose time has ended expires later like any other, so
// that its deletion gets into the log.
func (q *sequencer) replay(o *ServerOptions) error {
	if o.Log == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r := replayer{q: q, begun: time.Now(), tell: o.OnReplay}
	r.told = r.begun
	begin := q.state.Last()
	done, err := o.Log.Replay(r.entry)
	if err != nil {
		return fmt.Errorf("chp: the log cannot be replayed: %w", err)
	}
	if r.some {
		q.base = 0 // the map is not new
	}
	q.state.SkipTo(max(r.last, begin))
	q.orderAfter()
	if q.state.Terms.Newest.ID != 0 {
		// A server of a pair made the map, and the other one may have gone on with the last
		// reign, even if this one is started alone.
		q.order.reigns.Begin(0)
	}
	r.progress.Done, r.progress.Replayed = true, done
	r.report(time.Now())

	q.disk.log = o.Log
	q.disk.group = commit.NewGroup(o.Log, commit.GroupOptions{Policy: o.Sync, OnDurable: q.durable})
	q.disk.index = done.Last
	o.Log.Commit(done.Last) // Replay has flushed all, and clients are about to see it
	q.disk.grown.Store(r.grown)
	q.commits.disk, q.commits.durable = o.Sync.IsAlways(), done.Last
	q.noteWaits()
	if !r.named {
		return q.disk.appendMapID(q.state.ID)
	}
	return nil
}

type replayer struct {
	q        *sequencer
	spans    []sockets.Span
	last     int64
	some     bool  // an entry with updates was found
	named    bool  // the identity of the map was found
	reigned  bool  // the current entries belong to a checkpoint whose reigns were found
	grown    int64 // bytes of entries after the checkpoint
	begun    time.Time
	told     time.Time
	tell     func(ReplayProgress)
	progress ReplayProgress
	index    uint64 // of the previous entry
	entries  uint
}

func (r *replayer) entry(e commit.Entry) error {
	q := r.q
	l, err := parseStored(&e, q.state, r.spans)
	if err != nil {
		return err
	}
	switch e.Kind {
	case kindOrigins:
		return nil
	case kindMapID:
		r.named = true
		return nil
	case kindReigns:
		r.last, r.index, r.reigned = q.state.Terms.Newest.Last, e.Index, true
		r.some = r.some || r.last > 0
		return nil
	}
	r.some = true
	r.spans = l.spans
	if e.Index != r.index {
		r.reigned = false
	}
	// Not later than now, if the wall clock has been set back since.
	at := timer.Now() + min(time.Until(e.When()), 0)
	if n := len(r.spans); r.reigned {
		q.state.RestoreRecords(l.wire, r.spans, at)
	} else if n > 0 {
		last := kvmsg.Record(l.wire[r.spans[n-1].Start:]).Seq()
		if e.Index == r.index {
			last = max(last, r.last) // the records of a checkpoint are not ordered
		}
		l.sent.Reign, l.sent.First, l.sent.Count, l.sent.At = e.Epoch, last-int64(n)+1, uint32(n), at
		q.state.Apply(&state.Entry{Head: l.sent, Wire: l.wire, Spans: r.spans, Stamped: true})
		r.last = last
	}
	if e.Index > r.index && r.index > 0 {
		r.grown += int64(len(e.Records))
	}
	r.index = e.Index
	r.progress.Updates += uint64(len(r.spans))
	r.progress.Bytes += uint64(len(e.Records))
	if r.entries++; r.entries%64 == 0 {
		if now := time.Now(); now.Sub(r.told) >= replayEvery {
			r.report(now)
		}
	}
	return nil
}

func (r *replayer) report(now time.Time) {
	if r.tell != nil {
		r.told = now
		r.progress.Elapsed = now.Sub(r.begun)
		r.tell(r.progress)
	}
}
