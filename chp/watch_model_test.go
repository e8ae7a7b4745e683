package chp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/testenv"
	"clustermap/internal/wake"
)

// watcher is a watch and the map that follows from its events.
type watcher struct {
	w      *Watch
	of     subtree.Set
	state  map[string]string
	synced bool

	changes int // of state, that may wait in its queue
}

// readAll reads the queued events.
func (r *watcher) readAll(t *testing.T) {
	t.Helper()
	see := func(e Event) bool {
		switch e.Op {
		case OpSet:
			r.state[string(e.Key)] = string(e.Value)
		case OpDelete:
			delete(r.state, string(e.Key))
		case OpSynced:
			r.synced = true
		}
		return true
	}
	for r.changes = 0; ; {
		e, err := r.w.Next(wake.Ended)
		if errors.Is(err, context.Canceled) {
			return
		}
		must(t, err)
		see(e)
		if err := r.w.NextBatch(wake.Ended, see); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// TestWatchAgainstModel lets watches begin, read and end at any moment of a
// random history of updates and resynchronisations: the events that each has seen add up
// to the state whenever it has read all of them.
func TestWatchAgainstModel(t *testing.T) {
	t.Parallel()
	for round := range testenv.Rounds(60) {
		random := rand.New(rand.NewPCG(11, uint64(round)))
		c := idleClient(t, ClientOptions{})
		model := map[string]string{}
		seq := int64(0)
		random1 := func() pub {
			seq++
			p := pub{fmt.Sprintf("/%c/%d", "ab"[random.IntN(2)], random.IntN(30)), seq, ""}
			if random.IntN(3) > 0 {
				p.value = fmt.Sprint(random.IntN(4))
			}
			return p
		}
		remember := func(p pub) {
			if p.value == "" {
				delete(model, p.key)
			} else {
				model[p.key] = p.value
			}
		}
		var s *played
		var watches []*watcher
		for range 300 {
			switch n := random.IntN(20); {
			case n == 0 || s == nil: // another server
				clear(model)
				seq = int64(random.IntN(50))
				cut := seq
				var snapshot []pub
				for range random.IntN(40) {
					p := random1()
					p.seq = cut
					remember(p)
					snapshot = append(snapshot, p)
				}
				seq = cut
				s = begin(t, c, cut, snapshot...)
				for _, w := range watches {
					if w.changes++; w.changes == 3 { // and the one that it began with
						w.readAll(t)
					}
				}
			case n == 1:
				of := [][]string{nil, {"/a/"}, {"/b/1", "/b/2"}}[random.IntN(3)]
				watches = append(watches, &watcher{w: openWatch(t, c, of...), of: subtree.New(of), state: map[string]string{}})
			case n == 2 && len(watches) > 0:
				i := random.IntN(len(watches))
				must(t, watches[i].w.Close())
				watches = slices.Delete(watches, i, i+1)
			case n < 8 && len(watches) > 0:
				w := watches[random.IntN(len(watches))]
				w.readAll(t)
				want := maps.Clone(model)
				maps.DeleteFunc(want, func(key, _ string) bool { return !w.of.Contains([]byte(key)) })
				if !w.synced || !maps.Equal(w.state, want) {
					t.Fatalf("round %d: watch has seen %v, the state is %v", round, w.state, want)
				}
			default:
				var batch []pub
				for range 1 + random.IntN(10) {
					p := random1()
					remember(p)
					batch = append(batch, p)
				}
				s.play(t, batch...)
			}
		}
	}
}

// TestWatchConcurrently runs updates, resynchronisations and watches at the
// same time, for the race detector and for the order of events.
func TestWatchConcurrently(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := idleClient(t, ClientOptions{})
	const last = 3000
	var readers sync.WaitGroup
	for i := range 4 {
		w := openWatch(t, c)
		readers.Go(func() {
			counter := -1
			look := func(e Event) bool {
				if string(e.Key) != "counter" {
					return true
				}
				var n int
				if _, err := fmt.Sscan(string(e.Value), &n); err != nil || n <= counter {
					t.Errorf("counter is %q after %d, %v", e.Value, counter, err)
				}
				counter = n
				return true
			}
			for counter < last {
				var err error
				if i%2 == 0 {
					err = w.NextBatch(ctx, look)
				} else {
					var e Event
					if e, err = w.Next(ctx); err == nil {
						look(e)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var s *played
	for n := range last + 1 {
		value := fmt.Sprint(n)
		if n%1000 == 0 {
			s = begin(t, c, 0, pub{"counter", 0, value})
			continue
		}
		s.play(t, pub{"counter", int64(n), value}, pub{fmt.Sprint("k", n%50), int64(n) + 1, value})
	}
	readers.Wait()
}

func TestWatchAllocatesNothing(t *testing.T) {
	c := idleClient(t, ClientOptions{})
	begin(t, c, 0)
	w := openWatch(t, c)
	must(t, w.NextBatch(testContext(t), func(Event) bool { return true }))
	var batch []pub
	for i := range 64 {
		batch = append(batch, pub{fmt.Sprint("key", i), int64(i), "value"})
	}
	wire, spans := wireBatch(t, batch...)
	events := 0
	count := func(Event) bool {
		events++
		return true
	}
	ctx := testContext(t)
	for range 2000 { // let the log reach its steady state
		c.live.Apply(wire, spans, 64)
		must(t, w.NextBatch(ctx, count))
	}
	if n := testenv.Allocs(0, 1000, func() {
		c.live.Apply(wire, spans, 64)
		must(t, w.NextBatch(ctx, count))
		c.live.Apply(wire, spans, 64)
		for range spans {
			if _, err := w.Next(ctx); err != nil {
				t.Fatal(err)
			}
			events++
		}
	}); n >= 1 {
		t.Errorf("%v allocations for 128 updates and events, want 0", n)
	}
	if events < 64*2000 {
		t.Errorf("%d events", events)
	}
}
