package chp

import (
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal/disk"
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

// replay fills the map from the log before the server listens, and begins to append to it.
func (q *sequencer) replay(o *ServerOptions) error {
	if o.Log == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	begun := time.Now()
	told := begun
	var p ReplayProgress
	tell := func(updates, bytes uint64) {
		p.Updates, p.Bytes = updates, bytes
		if now := time.Now(); o.OnReplay != nil && (p.Done || now.Sub(told) >= replayEvery) {
			told, p.Elapsed = now, now.Sub(begun)
			o.OnReplay(p)
		}
	}
	j, found, err := disk.Open(disk.Options{Log: o.Log, Policy: o.Sync, Changed: q.committed, Replayed: tell}, q.state)
	if j == nil {
		return err
	}
	if found.Map {
		q.base = 0 // the map is not new
	}
	q.orderAfter()
	if q.state.Terms.Newest.ID != 0 {
		// A server of a pair made the map, and the other one may have gone on with the last
		// reign, even if this one is started alone.
		q.order.reigns.Begin(0)
	}
	q.journal, q.linked = j, found.Last
	p.Done, p.Replayed = true, found.Replayed
	tell(p.Updates, p.Bytes)
	return err
}

// EntryCheck returns a function that reports whether a server can replay an entry of its
// log, as it does when it starts: for durable.Check and durable.ReadBackup, which only check
// what is around the content of entries. The error is a [*commit.FormatError] or a
// [*commit.CorruptError].
func EntryCheck() func(commit.Entry) error { return disk.Check() }
