package chp

import (
	"context"
	"errors"
	"sync"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/sockets"
)

// requestWindow is how many ICANHAZ may be unanswered. A server of ours answers in
// order, says which one it answers, and finds the records for all waiting requests
// in one walk through the map. The window stays below the server's maxRequests.
// Other servers are asked one at a time.
const requestWindow = 128

// join brings the replica to the server's state. The snapshot makes a new
// store, while the KVPUBs that arrive meanwhile go to a second one, which keeps
// the newest of each key: both are bounded by the size of the map, however long
// the snapshot takes and however many updates come. Keys that were deleted
// meanwhile are remembered beside them. Those may be any number, so they have a
// bound of their own; beyond it the client begins anew, with a later snapshot.
//
// When the snapshot is complete, up to its cut S, every KVPUB above S goes into
// it. Then the new store takes the place of the old one at once: readers see
// the state before or the state after, never a mixture, and keys that were
// deleted while the client was away are gone.
func (s *session) join() error {
	s.expectSnapshot()
	next := newReplica(store.Options{}, s.deadlines)
	during := newInterim()

	var cuts []int64
	var failed error
	fetching, fetched := context.WithCancel(s.ctx)
	defer fetched()
	var fetch sync.WaitGroup
	fetch.Go(func() {
		defer fetched()
		cuts, failed = s.fetch(&next.Map)
	})
	for fetching.Err() == nil {
		if err := s.sub.RecvBatch(fetching, &s.batch); err != nil {
			break
		}
		s.arrived += int64(extent(s.batch.Spans()))
		s.spot(s.batch.Wire(), s.batch.Spans(), nil)
		spans, err := s.stream.filter(s.batch.Wire(), s.batch.Spans())
		s.deadlines.follow(s.batch.Wire(), spans)
		during.apply(s.batch.Wire(), spans)
		if err == nil && during.deletedBytes > max(s.client.opts.deletedBytes, deletionsPerKey*next.Len()) {
			err = errDeletions
		}
		if err != nil {
			s.fail(err)
			break
		}
	}
	fetch.Wait()
	if failed != nil {
		return failed
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}

	s.watchdog.expect(0, 0) // what follows is our own time, not the server's
	s.joined.Store(true)
	if !s.ours {
		s.unneeded.Store(true)
		_ = s.dealer.Close() // closing a socket does not fail
	}
	if err := s.stream.join(cuts); err != nil {
		return err
	}
	s.keep(&next.Map)
	during.mergeInto(&next.Map, s.stream.covered)
	s.countStale()
	s.replica = next
	return nil
}

// expectSnapshot has the session end when the server is silent. A server of ours
// that has many to serve is not, while its heartbeats come: it sends as much to
// each as there is memory for, and whoever gives up has to be sent everything again.
// A server of another make that sends heartbeats and no snapshot is a passive one.
func (s *session) expectSnapshot() {
	e := expectation{ears: earSnapshot, limit: s.client.opts.SyncTimeout}
	if s.ours {
		e.others = earSubscriber
	}
	s.watchdog.order(e)
}

// fetch asks for the snapshots and puts them into next, and returns their
// cuts, one for each request. It runs beside join, which does not touch
// next meanwhile.
func (s *session) fetch(next *store.Map) (cuts []int64, err error) {
	if s.server.snapshot == "" {
		s.fresh = true // so keep does its work
		return []int64{0}, nil
	}
	var b sockets.Batch
	defer b.Release()
	window := 1
	if s.ours {
		window = requestWindow
	}
	var pieces []store.Piece
	asked := 0
	for len(cuts) < len(s.requests.list) {
		for asked < min(len(cuts)+window, len(s.requests.list)) {
			if err := s.dealer.Send(s.ctx, s.client.dialect.request(s.requests.list[asked])...); err != nil {
				return nil, err
			}
			asked++
		}
		if err := s.dealer.RecvBatch(s.ctx, &b); err != nil {
			return nil, err
		}
		s.watchdog.heard.Or(earSnapshot) // as in apply
		wire, spans := b.Wire(), b.Spans()
		for len(spans) > 0 {
			end := 0
			for end < len(spans) && !endsSnapshot(wire, spans[end]) {
				end++
			}
			s.deadlines.follow(wire, spans[:end])
			pieces = next.Apply(wire, spans[:end], 0, pieces[:0])
			if end == len(spans) {
				break
			}
			if len(cuts) == asked {
				return nil, errNotCHP // an answer to nothing
			}
			last := kvmsg.Record(wire[spans[end].Start:])
			cuts = append(cuts, last.Seq())
			s.fresh = s.ours && (s.fresh || len(cuts) == 1) && saysNew(last)
			spans = spans[end+1:]
		}
	}
	return cuts, nil
}

// endsSnapshot says whether a span is a KTHXBAI.
func endsSnapshot(wire []byte, span sockets.Span) bool {
	return span.Tag == kthxbaiTag && isCommand(wire[span.Start:span.End], kvmsg.KeyKTHXBAI)
}

// interim is what KVPUBs say while a snapshot is on its way: the newest of each
// key, deletions included.
type interim struct {
	store        *store.Map
	deleted      map[string]int64 // keys whose newest KVPUB deletes them, with its sequence
	deletedBytes int              // memory of deleted
	pieces       []store.Piece    // scratch
}

const (
	// deletionBytes is the memory that a deletion takes besides its key.
	deletionBytes = 64

	// The memory of deletions may be maxDeletedBytes, or deletionsPerKey bytes for
	// each key of the snapshot so far if that is more: a large map takes long to
	// join, and more is deleted meanwhile.
	maxDeletedBytes = 64 << 20
	deletionsPerKey = 128
)

// errDeletions is why a join begins anew.
var errDeletions = errors.New("chp: too many keys were deleted while the snapshot arrived")

func newInterim() *interim {
	return &interim{store: store.New(store.Options{}), deleted: map[string]int64{}}
}

// apply notes the KVPUBs of a batch, in canonical form.
func (t *interim) apply(wire []byte, spans []sockets.Span) {
	if len(spans) == 0 {
		return
	}
	for _, span := range spans {
		r := kvmsg.Record(wire[span.Start:span.End])
		if span.Tag&kvmsg.TagDelete == 0 && len(t.deleted) == 0 {
			continue
		}
		key := r.Key()
		if _, known := t.deleted[string(key)]; known {
			delete(t.deleted, string(key))
			t.deletedBytes -= deletionBytes + len(key)
		}
		if span.Tag&kvmsg.TagDelete != 0 {
			t.deleted[string(key)] = r.Seq()
			t.deletedBytes += deletionBytes + len(key)
		}
	}
	t.pieces = t.store.Apply(wire, spans, 0, t.pieces[:0])
}

// mergeInto brings what was noted into the snapshot, but for what the snapshot
// covers already.
func (t *interim) mergeInto(snapshot *store.Map, covered func(key []byte, seq int64) bool) {
	for key, seq := range t.deleted {
		if k := []byte(key); !covered(k, seq) {
			snapshot.Put(k, seq, nil, nil, nil)
		}
	}
	noted := t.store.Cut()
	defer noted.Release()
	noted.Records(func(r kvmsg.Record) bool {
		if key, seq := r.Key(), r.Seq(); !covered(key, seq) {
			snapshot.Put(key, seq, r.UUID(), r.Props(), r.Value())
		}
		return true
	})
}
