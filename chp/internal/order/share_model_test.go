package order

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// Random updates of clients with shares that overlap, and of others, in batches and transactions, committed at once or later: each is refused
// if, and only if, it would take its client beyond the share, by a model that knows all that was ordered. The counts are those of the model, also at a
// server that was started again or has taken over.
func TestSharesByAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) { modelShares(t, seed) })
	}
}

func modelShares(t *testing.T, seed uint64) {
	t.Helper()
	m := &leaseModel{t: t, r: rand.New(rand.NewPCG(seed, 1)), held: seed%2 == 1}
	m.start()
	shares := []*Share{
		NewShare([]string{"/a/"}, 4, 0), NewShare([]string{"/a/b/", "/c", "/d/"}, 3, 200), NewShare([]string{""}, 0, 600), nil,
	}
	mayWrite := []func(string) bool{
		func(k string) bool { return strings.HasPrefix(k, "/a/") },
		func(k string) bool { return strings.HasPrefix(k, "/a/b/") || k == "/c" || strings.HasPrefix(k, "/d/") },
		func(string) bool { return true }, func(string) bool { return true },
	}
	keys := []string{"/a/1", "/a/2", "/a/3", "/a/b/1", "/a/b/2", "/a/b/3", "/ab/1", "/c", "/cc", "/d/1", "/d/2"}
	now := map[string]int64{} // of all that is ordered
	used := func(now map[string]int64, i int) (u use) {
		for key, size := range now {
			if mayWrite[i](key) {
				u.keys, u.bytes = u.keys+1, u.bytes+size
			}
		}
		return u
	}
	apply := func(now map[string]int64, key string, size int64) {
		if delete(now, key); size > 0 {
			now[key] = size
		}
	}
	fits := func(now map[string]int64, i int, key string, size int64) bool {
		s := shares[i]
		if s == nil {
			return true
		}
		u, before := used(now, i), now[key]
		return !(s.keys > 0 && before == 0 && size > 0 && u.keys >= s.keys) && !(s.bytes > 0 && size > before && u.bytes+size-before > s.bytes)
	}
	for range 300 {
		i := m.r.IntN(len(shares))
		var mine []string
		for _, key := range keys {
			if mayWrite[i](key) {
				mine = append(mine, key)
			}
		}
		var wire []byte
		var ends []int
		var names []string
		n := 1 + m.r.IntN(4)
		m.number++
		for left := n - 1; left >= 0; left-- {
			uuid := txn.Mark(1).UUID(m.number)
			key, value := mine[m.r.IntN(len(mine))], make([]byte, m.r.IntN(60))
			if m.r.IntN(3) == 0 {
				value = nil
			}
			names = append(names, key)
			wire = kvmsg.AppendRecord(wire, []byte(key), 0, uuid[:], txn.AppendMore(nil, left), value)
			ends = append(ends, len(wire))
		}
		spans, ok := kvmsg.SpansOf(wire, nil)
		if !ok {
			t.Fatal("malformed updates")
		}
		size := func(n int) int64 { return sizeOf(kvmsg.Record(wire[spans[n].Start:spans[n].End])) }
		if m.r.IntN(2) == 0 { // a batch, of which each update is judged by itself
			want := map[int]bool{}
			for n, key := range names {
				if want[n] = fits(now, i, key, size(n)); want[n] {
					apply(now, key, size(n))
				}
			}
			refused := 0
			for _, ok := range want {
				if !ok {
					refused++
				}
			}
			m.q.mu.Lock()
			unfit, _ := m.q.acceptNow(wire, slices.Clone(spans), From{Share: shares[i]})
			for _, span := range unfit {
				if n := slices.Index(ends, int(span.End)); want[n] || kvmsg.Reason(span.Tag) != kvmsg.ReasonLimit {
					t.Errorf("seed %d: update %d of %q is refused for %v", seed, n, names, kvmsg.Reason(span.Tag))
				}
			}
			m.q.mu.Unlock()
			if len(unfit) != refused {
				t.Fatalf("seed %d: %d updates are refused, want %d", seed, len(unfit), refused)
			}
		} else { // a transaction, of which all are made or none
			after, want := map[string]int64{}, true
			for key, size := range now {
				after[key] = size
			}
			for n, key := range names {
				want = want && fits(after, i, key, size(n))
				apply(after, key, size(n))
			}
			a, _, ok, err := m.q.transactLocal(&txn.Request{Number: m.number, Updates: wire}, From{Share: shares[i]})
			if !ok || err != nil || (a.Status == txn.StatusMade) != want || !want && a.Sequence != int64(kvmsg.ReasonLimit) {
				t.Fatalf("seed %d: %q: %v, %v, %+v; want %v", seed, names, ok, err, a, want)
			}
			if want {
				now = after
			}
		}
		m.commit(false)
		switch m.r.IntN(30) {
		case 0:
			m.commit(true)
			m.disk = append(m.disk, m.j.appended[:m.j.committed]...)
			m.start()
			for _, s := range shares { // they belong to one server
				if s != nil {
					s.parts = nil
				}
			}
		case 1:
			m.commit(true)
			m.fail()
			for _, s := range shares {
				if s != nil {
					s.parts = nil
				}
			}
		case 2:
			m.q.Count([]string{"/a/", "/d/", "/other/"})
		}
		m.q.mu.Lock()
		for i, s := range shares {
			if s == nil {
				continue
			}
			if got, want := m.q.used(s), used(now, i); got != want {
				t.Fatalf("seed %d: share %d uses %+v, want %+v", seed, i, got, want)
			}
		}
		m.q.mu.Unlock()
		if t.Failed() {
			return
		}
	}
}

// What a client with a share sends, one update at a time, allocates no more than what others send.
func TestSharesDoNotAllocate(t *testing.T) {
	m := newLeases(t, time.Minute, 0, 0, false)
	uuid := txn.Mark(1).UUID(1)
	wire := kvmsg.AppendRecord(nil, []byte("/a/key"), 0, uuid[:], nil, []byte("v"))
	spans, _ := kvmsg.SpansOf(wire, nil)
	once := func(s *Share) float64 {
		own := make([]buf.Span, 1)
		return testenv.Allocs(10, 200, func() {
			m.j.appended, own[0] = m.j.appended[:0], spans[0]
			m.q.mu.Lock()
			m.q.acceptNow(wire, own, From{Share: s})
			m.q.mu.Unlock()
		})
	}
	without := once(nil)
	if with := once(NewShare([]string{"/a/"}, 10, 1000)); with > without {
		t.Errorf("%v allocations, without a share %v", with, without)
	}
}
