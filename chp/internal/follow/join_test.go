package follow

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// contents returns the content of a store.
func contents(s *store.Map) map[string]string {
	m := map[string]string{}
	c := s.Cut()
	defer c.Release()
	c.Records(func(r kvmsg.Record) bool {
		m[string(r.Key())] = string(r.Value())
		return true
	})
	return m
}

// applyTo applies messages to a store as they are.
func applyTo(t testing.TB, s *store.Map, messages ...pub) []store.Piece {
	t.Helper()
	wire, spans := wireBatch(t, messages...)
	return s.Apply(wire, spans, 0, nil)
}

func TestJoinDeletedDuringSnapshot(t *testing.T) {
	t.Parallel()
	snapshot, during := store.New(store.Options{}), newInterim(store.New(store.Options{}), nil)
	all := subtree.New(nil)
	s := newStream(&all, false)
	early := []pub{
		{"gone", 3, "old"}, {"gone", 4, ""}, // before the cut: the snapshot has a newer one
		{"back", 8, ""}, {"back", 9, "again"},
		{"dead", 7, "short"}, {"dead", 10, ""},
		{"stays", 5, "older than the snapshot's"},
	}
	wire, spans := wireBatch(t, early...)
	during.apply(wire, spans)
	applyTo(t, snapshot, pub{"gone", 5, "set after"}, pub{"back", 2, "x"}, pub{"dead", 1, "x"}, pub{"stays", 6, "y"}, pub{"quiet", 0, "z"})
	must(t, s.join([]int64{6}))
	during.mergeInto(snapshot, s.covered)
	want := map[string]string{"gone": "set after", "back": "again", "stays": "y", "quiet": "z"}
	if got := contents(snapshot); !maps.Equal(got, want) {
		t.Errorf("joined to %v, want %v", got, want)
	}
}

// TestUpdatesDuringJoinNeedBoundedMemory: while the records of a snapshot wait for the index,
// updates that others replace do not add up.
func TestUpdatesDuringJoinNeedBoundedMemory(t *testing.T) {
	t.Parallel()
	s := store.New(store.Options{})
	during := newInterim(s, nil)
	value := strings.Repeat("v", 100)
	size := 0
	for i := range 2000 { // a slow snapshot beside fast updates
		wire, spans := wireBatch(t, pub{fmt.Sprint("/synced/", i), 1, value})
		during.sync(wire, spans)
		var updates []pub
		for n := range int64(100) {
			updates = append(updates, pub{fmt.Sprint("/", n), 2 + 100*int64(i) + n, value})
		}
		wire, spans = wireBatch(t, updates...)
		size = during.apply(wire, spans)
	}
	if log := s.LogBytes(); log > 2<<20 {
		t.Errorf("the log has %d bytes for %d of a map", log, size)
	}
	during.settle()
	if s.Len() != 2100 {
		t.Errorf("%d keys", s.Len())
	}
}

// TestJoinForgetsDeadlines: a key that is deleted during the snapshot leaves no deadline,
// whether its KVSYNC comes before or after the KVPUB that deletes it.
func TestJoinForgetsDeadlines(t *testing.T) {
	t.Parallel()
	stays := kvmsg.Record(kvmsg.AppendRecord(nil, []byte("stays"), 6, nil, []byte("ttl=3600\n"), []byte("v")))
	var synced []byte
	var syncedSpans []buf.Span
	for i, key := range []string{"gone", "stays"} {
		start := len(synced)
		synced = kvmsg.AppendRecord(synced, []byte(key), int64(5+i), nil, []byte("ttl=3600\n"), []byte("v"))
		syncedSpans = append(syncedSpans, buf.Span{Start: uint32(start), End: uint32(len(synced)), Tag: kvmsg.HashKey([]byte(key)) | kvmsg.TagProperties})
	}
	for _, merged := range []bool{false, true} {
		for _, first := range []bool{false, true} {
			d := new(timer.Deadlines)
			snapshot := store.New(store.Options{})
			during := newInterim(store.New(store.Options{}), d)
			if merged {
				during = newInterim(snapshot, d)
			}
			deleted, deletedSpans := wireBatch(t, pub{"gone", 10, ""})
			deletion := func() { during.apply(deleted, deletedSpans) }
			if first {
				deletion()
			}
			if spans := slices.Clone(syncedSpans); merged {
				during.sync(synced, spans)
			} else {
				d.Apply(synced, spans, 0, timer.Now())
				snapshot.Apply(synced, spans, 0, nil)
			}
			if !first {
				deletion()
			}
			during.settle()
			if !merged {
				during.mergeInto(snapshot, func([]byte, int64) bool { return false })
			}
			if got := contents(snapshot); len(got) != 1 || d.Len() != 1 || d.Remaining(stays) < 59*time.Minute {
				t.Errorf("merged %v, deletion first %v: keys %v and %d deadlines", merged, first, got, d.Len())
			}
		}
	}
}

// TestJoinManyKeys: more KVPUBs than mergeInto applies at a time, some of them covered by
// the snapshot, others not, and some of keys that it does not have.
func TestJoinManyKeys(t *testing.T) {
	t.Parallel()
	const keys, cut = 5*mergeBatch + 3, 2*mergeBatch + 1
	snapshot, during := store.New(store.Options{}), newInterim(store.New(store.Options{}), nil)
	all := subtree.New(nil)
	s := newStream(&all, false)
	want := map[string]string{}
	for i := range keys {
		key, seq := fmt.Sprint("/key/", i), int64(i+1)
		wire, spans := wireBatch(t, pub{key, seq, "during"})
		during.apply(wire, spans)
		want[key] = "during"
		if seq <= cut {
			applyTo(t, snapshot, pub{key, 0, "snapshot"})
			want[key] = "snapshot"
		}
	}
	must(t, s.join([]int64{cut}))
	during.mergeInto(snapshot, s.covered)
	if got := contents(snapshot); !maps.Equal(got, want) {
		t.Errorf("joined to %d keys, want %d", len(got), len(want))
	}
	snapshot.View([]byte(fmt.Sprint("/key/", keys-1)), func(r kvmsg.Record) {
		if r.Seq() != keys {
			t.Errorf("the last record has sequence %d, want %d", r.Seq(), keys)
		}
	})
}

// BenchmarkMergeInto copies 500,000 KVPUBs into a snapshot of a million keys.
func BenchmarkMergeInto(b *testing.B) {
	const keys, updated = 1_000_000, 500_000
	value := strings.Repeat("v", 32)
	var messages []pub
	for i := range keys {
		messages = append(messages, pub{fmt.Sprintf("/bench/%07d", i), int64(i + 1), value})
	}
	loaded := func(order []int, apply func(wire []byte, spans []buf.Span) int) {
		for ; len(order) > 0; order = order[min(1000, len(order)):] {
			var part []pub
			for _, i := range order[:min(1000, len(order))] {
				part = append(part, messages[i])
			}
			apply(wireBatch(b, part...))
		}
	}
	snapshot, during := store.New(store.Options{}), newInterim(store.New(store.Options{}), nil)
	random := rand.New(rand.NewPCG(1, 2))
	loaded(random.Perm(keys), func(wire []byte, spans []buf.Span) int {
		snapshot.Apply(wire, spans, 0, nil)
		return snapshot.LiveBytes()
	})
	loaded(random.Perm(keys)[:updated], during.apply)
	for b.Loop() {
		during.mergeInto(snapshot, func([]byte, int64) bool { return false })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/updated, "ns/record")
}

// TestJoinAgainstModel plays random updates against a model, cuts snapshots of
// several subtrees at random points, and shows the client each part of the
// stream beside the snapshots or after the join. With any interleaving the client ends
// with the server's state: in particular, it ends without a key that the server has deleted.
func TestJoinAgainstModel(t *testing.T) {
	t.Parallel()
	for round := range 400 {
		random := rand.New(rand.NewPCG(7, uint64(round)))
		specs := [][]string{{""}, {"/a/"}, {"/a/", "/b/"}, {"/a/1", "/b/"}, {"/a/", "/b/", "/c/2", "/c/3"}}[random.IntN(5)]
		wanted := subtree.New(specs)
		ours := random.IntN(2) == 0
		requests := wanted
		if !ours {
			requests = wanted.Plain()
		}
		s := newStream(&requests, ours)
		merged := ours && s.counted
		snapshot, during := store.New(store.Options{}), newInterim(store.New(store.Options{}), nil)

		model, since := map[string]string{}, map[string]int64{}
		var stream []pub // the updates of the subscription, in order
		seq := int64(random.IntN(3)) * 1000
		update := func(subscribed bool) {
			seq++
			if !ours && random.IntN(4) == 0 {
				seq += int64(random.IntN(5)) // others may leave gaps
			}
			p := pub{key: fmt.Sprintf("/%c/%d", "abc"[random.IntN(3)], random.IntN(6)), seq: seq}
			if random.IntN(3) > 0 {
				p.value = fmt.Sprint("v", seq)
				model[p.key], since[p.key] = p.value, p.seq
			} else {
				delete(model, p.key)
			}
			if subscribed && wanted.Contains([]byte(p.key)) {
				stream = append(stream, p)
			}
		}
		for range random.IntN(40) {
			update(false)
		}
		// Subscribed from here on. The cuts come one after the other.
		var cuts []int64
		var synced []pub
		for _, request := range requests.List {
			for range random.IntN(20) {
				update(true)
			}
			one := subtree.New([]string{request})
			for key, value := range model {
				if one.Contains([]byte(key)) && wanted.Contains([]byte(key)) {
					p := pub{key, int64(random.IntN(5)), value} // a KVSYNC's sequence means nothing
					if merged {
						p.seq = since[key]
					}
					synced = append(synced, p)
				}
			}
			cuts = append(cuts, seq)
		}
		for range random.IntN(40) {
			update(true)
		}

		// Some of the stream is seen before the join, the rest after it, in
		// batches.
		early := random.IntN(len(stream) + 1)
		for merged && early > 0 && early < len(stream) && stream[early-1].seq < cuts[0] {
			early++ // join waits for these
		}
		feed := func(part []pub, apply func([]byte, []pub)) {
			for len(part) > 0 {
				n := 1 + random.IntN(len(part))
				apply(nil, part[:n])
				part = part[n:]
			}
		}
		for left := stream[:early]; len(left)+len(synced) > 0; {
			if n := random.IntN(len(left) + 1); n > 0 {
				wire, spans := wireBatch(t, left[:n]...)
				spans, err := s.filter(wire, spans)
				must(t, err)
				during.apply(wire, spans)
				left = left[n:]
			}
			if n := random.IntN(len(synced) + 1); n > 0 {
				wire, spans := wireBatch(t, synced[:n]...)
				if merged {
					during.sync(wire, spans)
				} else {
					snapshot.Apply(wire, spans, 0, nil)
				}
				synced = synced[n:]
			}
		}
		must(t, s.join(cuts))
		if during.settle(); merged {
			snapshot = during.store
		} else {
			during.mergeInto(snapshot, s.covered)
		}
		feed(stream[early:], func(_ []byte, part []pub) {
			wire, spans := wireBatch(t, part...)
			spans, err := s.filter(wire, spans)
			must(t, err)
			snapshot.Apply(wire, spans, 0, nil)
		})

		want := map[string]string{}
		for key, value := range model {
			if wanted.Contains([]byte(key)) {
				want[key] = value
			}
		}
		if got := contents(snapshot); !maps.Equal(got, want) {
			t.Fatalf("round %d, subtrees %q: client has %v, server %v", round, specs, got, want)
		}
	}
}
