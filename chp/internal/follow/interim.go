package follow

import (
	"errors"
	"slices"
	"sync"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// interim holds the KVPUBs that arrive during a snapshot: the newest of each key,
// including deletions. For a snapshot that is merged, it holds the KVSYNCs too. It also
// records the deadlines of what it holds. apply and sync may be called concurrently.
//
// The KVSYNCs are only appended to the log of the store until settle: when all have come, the
// index need not grow step by step.
type interim struct {
	deadlines    *timer.Deadlines // locked after mu
	mu           sync.Mutex
	store        *store.Map
	deleted      map[string]int64 // keys whose newest KVPUB deletes them, with its sequence
	deletedBytes int              // memory of deleted
	pieces       []store.Piece    // scratch of mergeInto
	waiting      []store.Piece    // KVSYNCs that the index does not have yet
	beside       int              // bytes of KVPUBs since waiting was empty
}

// errDeletions makes a join start again.
var errDeletions = errors.New("chp: too many keys were deleted while the snapshot arrived")

// newInterim returns an interim that puts the updates into a store.
func newInterim(s *store.Map, d *timer.Deadlines) *interim {
	return &interim{deadlines: d, store: s, deleted: map[string]int64{}}
}

// apply adds a batch of KVPUBs in canonical form, and returns the size of the store in bytes.
func (t *interim) apply(wire []byte, spans []buf.Span) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.beside += buf.Extent(spans); deletesAny(spans) || t.beside > t.store.UnlinkedBytes()/waitingShare {
		t.link()
	}
	for _, span := range spans {
		deletes := span.Tag&kvmsg.TagDelete != 0
		if !deletes && len(t.deleted) == 0 {
			continue
		}
		r := kvmsg.Record(wire[span.Start:span.End])
		t.forget(r.Key())
		if deletes {
			t.deleted[string(r.Key())] = r.Seq()
			t.deletedBytes += deletionBytes + len(r.Key())
		}
	}
	t.deadlines.Apply(wire, spans, 0, timer.Now())
	t.store.Merge(wire, spans)
	return t.bytes()
}

func deletesAny(spans []buf.Span) bool {
	return slices.ContainsFunc(spans, func(s buf.Span) bool { return s.Tag&kvmsg.TagDelete != 0 })
}

// bytes returns the size of the store. mu must be held.
func (t *interim) bytes() int { return t.store.LiveBytes() + t.store.UnlinkedBytes() }

// settle puts all KVSYNCs into the index.
func (t *interim) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link()
}

// link is settle. mu must be held. A KVPUB that deletes a key must find it, and while KVSYNCs
// wait no memory is freed of KVPUBs that others have replaced, so neither waits for the
// end of the snapshot.
func (t *interim) link() {
	t.store.MergeAppended(t.waiting)
	clear(t.waiting)
	t.waiting, t.beside = t.waiting[:0], 0
}

// sync adds a batch of KVSYNCs in canonical form, which have sequences of KVPUBs, and
// returns the size of the store in bytes. It overwrites spans.
func (t *interim) sync(wire []byte, spans []buf.Span) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.deleted) > 0 {
		kept := spans[:0]
		for _, span := range spans {
			r := kvmsg.Record(wire[span.Start:span.End])
			if seq, known := t.deleted[string(r.Key())]; known {
				if r.Seq() < seq && !mutate.MergeStale {
					continue
				}
				t.forget(r.Key())
			}
			kept = append(kept, span)
		}
		spans = kept
	}
	t.deadlines.Apply(wire, spans, 0, timer.Now())
	t.waiting = t.store.Append(wire, spans, 0, t.waiting)
	return t.bytes()
}

// forget removes a deletion. mu must be held.
func (t *interim) forget(key []byte) {
	if _, known := t.deleted[string(key)]; known {
		delete(t.deleted, string(key))
		t.deletedBytes -= deletionBytes + len(key)
	}
}

// knows reports whether an update of a key is held, be it a deletion.
// KVSYNCs must be settled.
func (t *interim) knows(key []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, deleted := t.deleted[string(key)]
	return deleted || t.store.SizeOf(kvmsg.HashKey(key), key) > 0
}

// deletions returns the memory of the deletions in bytes.
func (t *interim) deletions() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deletedBytes
}

// mergeInto copies the KVPUBs into the snapshot, except those that it already covers. It
// does so in batches, because in a large map Apply waits for no cache miss.
func (t *interim) mergeInto(snapshot *store.Map, covered func(key []byte, seq int64) bool) {
	for key, seq := range t.deleted {
		if k := []byte(key); !covered(k, seq) {
			snapshot.Put(k, seq, nil, nil, nil)
			t.deadlines.Remove(kvmsg.HashKey(k), seq) // that of a KVSYNC
		}
	}
	noted := t.store.Cut()
	defer noted.Release()
	spans := make([]buf.Span, 0, mergeBatch)
	noted.Pieces(func(p store.Piece) bool {
		wire := p.Wire()
		flush := func() {
			t.pieces = snapshot.Apply(wire, spans, 0, t.pieces[:0])
			spans = spans[:0]
		}
		for at := 0; at < len(wire); {
			r := kvmsg.Record(wire[at:])
			end := at + r.Size()
			if key := r.Key(); !covered(key, r.Seq()) {
				spans = append(spans, buf.Span{Start: uint32(at), End: uint32(end), Tag: kvmsg.HashKey(key)})
			}
			if at = end; len(spans) == mergeBatch {
				flush()
			}
		}
		flush()
		return true
	})
}
