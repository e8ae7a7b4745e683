package follow

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// join brings the replica to the server's state, in a new store. KVPUBs that arrive during
// the snapshot go into an interim, which keeps the newest of each key. Memory is
// bounded by the size of the map, however long the snapshot takes. Deleted keys are
// remembered in a set that has its own bound; beyond it the client starts again with a
// later snapshot.
//
// A server of this package sends each KVSYNC with the sequence of the update that set the
// key. If the client gets the whole map from it, the snapshot is merged with the KVPUBs as
// both arrive: the highest sequence of each key wins. Otherwise the snapshot goes into a
// store of its own. When it is complete, up to its cut S, the KVPUBs above S are copied
// into it.
//
// The new store replaces the old one atomically. So readers see the state before or after,
// never a mixture, and keys that were deleted while the client was away disappear.
func (s *session) join() error {
	s.expectSnapshot()
	next := state.New(0)
	into := &next.Store // what the KVPUBs go into
	merged := s.ours && s.stream.counted
	if !merged {
		into = store.New(store.Options{})
	}
	during := newInterim(into, &next.Deadlines)
	snapshot := during.sync
	if !merged {
		snapshot = func(wire []byte, spans []buf.Span) int {
			next.RestoreRecords(wire, spans, timer.Now())
			return next.Store.LiveBytes()
		}
	}
	var cuts []int64
	var failed error
	fetching, fetched := context.WithCancel(s.ctx)
	defer fetched()
	var fetch sync.WaitGroup
	fetch.Go(func() {
		defer fetched()
		cuts, failed = s.fetch(snapshot)
	})
	for fetching.Err() == nil && s.gather(fetching, during, &next.Store) {
	}
	fetch.Wait()
	if failed != nil {
		return failed
	}
	// A key that was set and deleted before the cut is not in the snapshot. If the KVPUB
	// that set it has come, the one that deletes it must come too: the server has published
	// all up to the cut.
	// So it is with a transaction: the snapshot has all of it or nothing.
	// And with several subtrees it can have a part of one that lies between their cuts.
	newest := slices.Max(cuts)
	between := s.ours && s.transactions && slices.Min(cuts) < newest
	if between && s.resumes && s.stream.known() < newest {
		// The server may be quiet. It sends a heartbeat at once; syncs does not know the answer.
		_ = hooks.SendWire(wake.Ended, s.dealer, wire.AppendSyncQuestion(nil, 0, true), 1, nil)
	}
	missing := func() bool {
		return merged && s.stream.received && s.stream.last < newest || s.partial.pending() && s.partial.end <= newest ||
			between && s.stream.known() < newest
	}
	for missing() && s.gather(s.ctx, during, &next.Store) {
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}

	s.watchdog.expect(0, 0) // from here on the client's own work takes the time
	during.settle()
	s.joined.Store(true)
	if !s.ours {
		s.unneeded.Store(true)
		_ = s.dealer.Close() // closing a socket does not fail
	}
	if err := s.stream.join(cuts); err != nil {
		return err
	}
	s.keep(&next.Store, func(key []byte) bool { return merged && during.knows(key) })
	if !merged {
		during.mergeInto(&next.Store, s.stream.covered)
	}
	s.countStale()
	if s.resumes {
		next.Skipped(s.end.Last, s.end.Sequence)
	}
	s.replica = next
	return s.fits(next.Store.LiveBytes())
}

// keep copies the client's keys into the new state, except for those that updates have changed
// meanwhile, if the server's map is new and empty and Options.KeepOnEmpty is set, or if the
// server sends no snapshots. Updates that are merged afterwards win, too.
func (s *session) keep(next *store.Map, newer func(key []byte) bool) {
	if !(s.end.New && s.opts.KeepOnEmpty || mutate.KeepOldKeys) {
		return
	}
	if kept, dropped := s.opts.Replica.CopyLasting(next, newer); kept+dropped > 0 {
		s.kept = kept
		s.opts.Log.Warn("keys kept: the server sent no snapshot, or that of a new and empty map", "server", s.server.Name, "kept", kept, "dropped", dropped)
	}
}

// fits returns an error if the map has become larger than this client may have it.
func (s *session) fits(bytes int) error {
	if limit := s.opts.MaxMapBytes; int64(bytes) > limit {
		return fmt.Errorf("%w: it has more than %d bytes", ErrMapTooLarge, limit)
	}
	return nil
}

// deletionRoom returns the bound of the memory of deletions, with so many keys in the
// snapshot so far.
func (s *session) deletionRoom(keys int) int {
	o := s.opts
	return max(o.DeletedBytes, int(min(deletionsPerKey*int64(keys), o.MaxMapBytes)))
}

// gather receives a batch of KVPUBs during a join and adds it to the interim. It returns
// false when the context or the session has ended.
func (s *session) gather(ctx context.Context, during *interim, next *store.Map) bool {
	if err := s.sub.RecvBatch(ctx, (*sockets.Batch)(&s.batch)); err != nil {
		return false
	}
	s.arrived += int64(buf.Extent(s.batch.Spans()))
	spans, err := s.stream.filter(s.batch.Wire(), s.batch.Spans())
	wire := s.batch.Wire()
	if s.ours {
		wire, spans = s.partial.whole(wire, spans, s.stream.known())
	}
	size := during.apply(wire, spans)
	if err == nil {
		err = s.fits(size + len(s.partial.wire))
	}
	if err == nil && during.deletions() > s.deletionRoom(next.Len()) {
		err = errDeletions
	}
	if err != nil {
		s.fail(err)
	}
	return err == nil
}

// expectSnapshot makes the session end when the server is silent. A server of this
// package that still sends heartbeats may have many clients to serve, and gets more
// time: a client that gave up would have to be sent everything again. A server of
// another implementation that sends heartbeats but no snapshot is a passive one.
func (s *session) expectSnapshot() {
	e := expectation{sources: fromSnapshot, limit: s.opts.SyncTimeout}
	if s.ours {
		e.others = fromSubscriber
	}
	s.watchdog.order(e)
}

// fetch requests the snapshots and calls apply with their KVSYNCs, which returns the size
// of the map so far. It returns their cuts, one for each request. It runs beside gather.
func (s *session) fetch(apply func(wire []byte, spans []buf.Span) (bytes int)) (cuts []int64, err error) {
	if s.server.Snapshot == "" {
		s.end.New = true // so that keep copies the old keys
		return []int64{0}, nil
	}
	var b hooks.Batch
	defer b.Release()
	window := 1
	if s.ours {
		window = requestWindow
	}
	asked := 0
	for len(cuts) < len(s.requests.List) {
		for asked < min(len(cuts)+window, len(s.requests.List)) {
			if err := s.dealer.Send(s.ctx, s.opts.Dialect.Request(s.requests.List[asked])...); err != nil {
				return nil, err
			}
			asked++
		}
		if err := s.dealer.RecvBatch(s.ctx, (*sockets.Batch)(&b)); err != nil {
			return nil, err
		}
		s.watchdog.heard.Or(fromSnapshot) // as in apply
		bytes, spans := b.Wire(), b.Spans()
		for len(spans) > 0 {
			end := 0
			for end < len(spans) && !endsSnapshot(bytes, spans[end]) {
				end++
			}
			if err := s.fits(apply(bytes, spans[:end])); err != nil {
				return nil, err
			}
			if end == len(spans) {
				break
			}
			if len(cuts) == asked {
				return nil, ErrNotCHP // an answer without a request
			}
			last := wire.ParseEnd(kvmsg.Record(bytes[spans[end].Start:]))
			cuts = append(cuts, last.Sequence)
			last.New = s.ours && (s.end.New || len(cuts) == 1) && last.New
			if s.end.New = last.New; len(cuts) == 1 || s.end.ID != last.ID {
				s.end = last
			}
			spans = spans[end+1:]
		}
	}
	return cuts, nil
}

// endsSnapshot reports whether a span is a KTHXBAI.
func endsSnapshot(wire []byte, span buf.Span) bool {
	return span.Tag == kthxbaiTag && isCommand(wire[span.Start:span.End], kvmsg.KeyKTHXBAI)
}
