package disk

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/retain"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// Found is what Open has found in a log.
type Found struct {
	commit.Replayed
	Last journal.Index // of the last entry now
	Map  bool          // there are updates, or were
}

// Open fills a state from a log: keys and values, sequences, and deadlines. A key whose time
// has ended expires later like any other, so that its deletion gets into the log. Then it
// returns the journal that continues the log. After an error the log is as before.
func Open(o Options, to *state.State) (*Journal, Found, error) {
	r := replayer{to: to, report: o.Replayed, window: o.Window}
	begin := to.Last()
	done, err := o.Log.Replay(r.entry)
	if err != nil {
		return nil, Found{}, fmt.Errorf("chp: the log cannot be replayed: %w", err)
	}
	if r.window != nil && r.window.Of() == nil && r.reigned {
		r.window.Begin(&to.Store, r.last, timer.Now()) // nothing follows the checkpoint, which says where it is
	}
	to.SkipTo(state.Unused(r.last, begin))
	if r.report != nil {
		r.report(r.updates, r.bytes)
	}
	j := &Journal{log: o.Log}
	j.grown.Store(r.grown)
	if j.Due(math.MaxInt64) {
		// Before entries are appended, because there may be no room for them without this one. If
		// there is no space for it either, the log is as it was before.
		c := to.Image()
		_ = j.checkpoint(context.Background(), c, done.Last, r.grown)
		c.Release()
	}
	j.start(&o, &done)
	last := done.Last
	err = j.group.Room(context.Background()) // it waits for nothing yet
	if err == nil && !r.named {              // a new log begins with the identity of the map
		last, err = j.group.AppendParts(commit.Entry{Kind: kindMapID, Time: time.Now().UnixNano(), Records: to.ID[:]})
	}
	if err != nil {
		j.group.Close()
		return nil, Found{}, err
	}
	return j, Found{done, journal.Index(last), r.some}, nil
}

// A Restorer fills a state from the entries of a checkpoint, such as Sections writes.
type Restorer struct{ r replayer }

// NewRestorer begins to fill an empty state. If the entries were sent by another server, at is when: they have what was left of
// the times to live. If it is 0, these count by the wall clock.
func NewRestorer(to *state.State, at time.Duration) *Restorer {
	return &Restorer{replayer{to: to, heard: at}}
}

// Entry adds an entry.
func (r *Restorer) Entry(e commit.Entry) error { return r.r.entry(e) }

// Sections returns a map as the entries of a checkpoint. Their bytes are valid until the next one.
func Sections(c *state.Image) iter.Seq[commit.Entry] {
	var newest state.Reign
	if n := len(c.Terms); n > 0 {
		newest = c.Terms[n-1]
	}
	return func(yield func(commit.Entry) bool) {
		for p := range c.Sections(checkpointEntry) {
			// The times to live count from the entry's time.
			e := commit.Entry{Epoch: newest.ID, Kind: uint32(p.Kind), Count: p.Count, Time: time.Now().UnixNano(), Records: p.Body}
			if p.Kind == state.KindRecords {
				e.First = uint64(newest.Last)
			}
			if !yield(e) {
				return
			}
		}
	}
}

// replayer fills a state from entries.
type replayer struct {
	to      *state.State
	spans   []buf.Span
	last    int64
	some    bool   // an entry with updates was found
	named   bool   // the identity of the map was found
	reigned bool   // the current entries belong to a checkpoint whose reigns were found
	grown   int64  // bytes of entries after the checkpoint
	index   uint64 // of the previous entry
	updates uint64
	bytes   uint64
	entries uint
	report  func(updates, bytes uint64)
	heard   time.Duration  // of a Restorer
	window  *retain.Window // or nil
}

// retain adds updates that follow r.last to the window.
func (r *replayer) retain(pieces []store.Piece, at time.Duration) {
	if r.window.Of() == nil {
		r.window.Begin(&r.to.Store, r.last, at)
	}
	r.window.Tick(at)
	r.window.Add(pieces)
}

func (r *replayer) entry(e commit.Entry) error {
	c, err := parse(&e, r.to, r.spans)
	if err != nil {
		return err
	}
	switch e.Kind {
	case kindOrigins, kindHistory, kindRequests:
		return nil
	case kindMapID:
		r.named, r.index = true, e.Index // what follows it in a new log follows the empty map
		return nil
	case kindReigns:
		r.last, r.index, r.reigned = r.to.Terms.Newest.Last, e.Index, true
		r.some = r.some || r.last > 0
		return nil
	}
	r.some = true
	r.spans = c.spans
	if e.Index != r.index {
		r.reigned = false
	}
	at := cmp.Or(r.heard, when(&e))
	if n := len(r.spans); r.reigned {
		r.to.RestoreRecords(c.wire, r.spans, at)
	} else if n > 0 {
		last := kvmsg.Record(c.wire[r.spans[n-1].Start:]).Seq()
		if e.Index == r.index {
			last = max(last, r.last) // the records of a checkpoint are not ordered
		}
		c.sent.Reign, c.sent.First, c.sent.Count, c.sent.At = e.Epoch, last-int64(n)+1, uint32(n), at
		out := r.to.Apply(&state.Entry{Head: c.sent, Wire: c.wire, Spans: r.spans, Stamped: true})
		if r.window != nil && e.Index > r.index && r.index > 0 { // the first one may be of a checkpoint
			r.retain(out.Pieces, at)
		}
		r.last = last
	}
	if e.Index > r.index && r.index > 0 {
		r.grown += int64(len(e.Records))
	}
	r.index = e.Index
	r.updates += uint64(len(r.spans))
	r.bytes += uint64(len(e.Records))
	if r.entries++; r.report != nil && r.entries%reportEvery == 0 {
		r.report(r.updates, r.bytes)
	}
	return nil
}
