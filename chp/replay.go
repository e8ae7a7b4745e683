package chp

import (
	"context"
	"crypto/rand"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/history"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/journal/disk"
	"clustermap/chp/internal/journal/raft"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/retain"
	"clustermap/chp/internal/state"
)

// ReplayProgress reports how much of its log a server has replayed.
type ReplayProgress struct {
	Updates         uint64        // replayed so far, those of the checkpoint included
	Bytes           uint64        // of the updates
	Elapsed         time.Duration // since the beginning
	Done            bool          // all is replayed
	commit.Replayed               // set when Done
}

// filled is the map with which a server begins.
type filled struct {
	state   *state.State
	journal journal.Journal
	linked  journal.Index // of the last entry in the map
	window  *retain.Window
	base    int64 // sequence of a map that is new and empty; 0 if there was one
}

// fill fills the map before the server listens: from the log or, if that is empty, with
// the keys of Preload. Those become the log's first checkpoint, because a part of them must
// not look like a map after a start that was interrupted. committed is called when the
// journal has committed more.
func fill(o *ServerOptions, committed func()) (f filled, err error) {
	f = filled{journal: journal.Memory{}, base: order.FirstSequence(time.Now())}
	if o.Cluster != nil { // what the cluster has replaces it
		f.journal, f.base = new(raft.Journal), 0
	}
	f.state = state.New(f.base)
	f.state.History, f.state.Leases = history.New(o.History, o.HistoryBytes), state.NewLeases()
	f.window = new(retain.Window)
	f.window.Limit(retain.Options{Bytes: o.RetainBytes, Age: o.RetainTime})
	if o.Cluster != nil {
		return f, nil // which has its identity, too
	}
	rand.Read(f.state.ID[:]) // never fails
	if o.Log != nil {
		if err := f.replay(o, committed); err != nil || f.base == 0 {
			return f, err
		}
	}
	if err = preload(f.state, o); err == nil && o.Log != nil && f.state.Store.Len() > 0 {
		err = f.journal.Save(context.Background(), func() (*state.Image, journal.Index) { return f.state.Image(), f.linked })
	}
	if err != nil {
		_ = f.journal.Close()
	}
	return f, err
}

// replay fills the map from the log, and begins to append to it.
func (f *filled) replay(o *ServerOptions, committed func()) error {
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
	j, found, err := disk.Open(disk.Options{Log: o.Log, Policy: o.Sync, Changed: committed, Window: f.window, Replayed: tell}, f.state)
	if err != nil {
		return err
	}
	if found.Map {
		f.base = 0
	}
	f.journal, f.linked = j, found.Last
	p.Done, p.Replayed = true, found.Replayed
	tell(p.Updates, p.Bytes)
	return nil
}

// EntryCheck returns a function that reports whether a server can replay an entry of its
// log, as it does when it starts: for durable.Check and durable.ReadBackup, which only check
// what is around the content of entries. An entry that is about a cluster is good, since a node
// replays it, and durable.Restore leaves it out. The error is a [*commit.FormatError] or a
// [*commit.CorruptError].
func EntryCheck() func(commit.Entry) error { return disk.Check() }
