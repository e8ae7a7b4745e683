//go:build unix

package chaos

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
)

// trace is what a program has been told by a watch, or by several, each of which goes on where the
// one before was left.
type trace struct {
	name      string
	subtrees  []string
	stretches []*stretch
}

// stretch is what one watch has reported.
type stretch struct {
	client *life // that it was of
	began  time.Duration
	since  int64 // 0: it began with the present state
	told   []told
}

// told is an event, or a mark of a watch.
type told struct {
	op          chp.Op
	cause       chp.Cause
	key         string
	value       uint64 // ID of the op, 0 for a deletion
	seq         int64
	transaction int64
	batch       int // which call of NextBatch has reported it
	at          time.Duration
}

// note records an event, and returns the operation that made its value.
func (s *stretch) note(e chp.Event, batch int, at time.Duration) (value uint64, err error) {
	if e.Op == chp.OpSet {
		if value, err = valueOf(string(e.Key), e.Value); err != nil {
			return 0, err
		}
	}
	s.told = append(s.told, told{e.Op, e.Cause, string(e.Key), value, e.Sequence, e.Transaction, batch, at})
	return value, nil
}

// position returns the sequence at which another watch can go on, 0 if there is none yet. What a
// new snapshot has brought does not move it.
func (s *stretch) position() int64 {
	at, synced := s.since, s.since != 0
	for _, e := range s.told {
		synced = synced || e.op == chp.OpSynced
		if synced && e.cause != chp.CauseResync {
			at = e.seq
		}
	}
	return at
}

// checkWatch checks the six guarantees of a watch, each under its name.
func (h *history) checkWatch(t *trace, k *facts) {
	seen := map[int64]bool{} // updates that were reported as they came
	at := int64(0)           // where the watch before was left
	for _, s := range t.stretches {
		if s.since != 0 && s.since != at {
			h.violate("resumable", "%s: a watch goes on after %d, and was left at %d", t.name, s.since, at)
		}
		at = s.position()
		h.checkState(t, s, k)
		h.checkWhole(t, s)
		h.checkStream(t, s, k, seen)
	}
}

// checkState: the state with which a watch begins was one of the map (atomic).
func (h *history) checkState(t *trace, s *stretch, k *facts) {
	end := slices.IndexFunc(s.told, func(e told) bool { return e.op == chp.OpSynced })
	if s.since != 0 || end < 0 {
		return // there is none, or it was left before
	}
	of, has := s.told[end].seq, map[string]uint64{}
	for _, e := range s.told[:end] {
		if e.seq > of {
			h.violate("atomic", "%s: the state of %d has %q of %d", t.name, of, e.key, e.seq)
		}
		if _, twice := has[e.key]; twice {
			h.violate("unique", "%s: the state of %d has %q twice", t.name, of, e.key)
		}
		has[e.key] = e.value
		all := k.byKey[e.key]
		n, _ := slices.BinarySearch(all, of+1)
		if n > 0 && all[n-1] > e.seq && k.bySeq[all[n-1]].value != e.value {
			h.violate("atomic", "%s: the state of %d has %q of %d, and %d came before that, too", t.name, of, e.key, e.seq, all[n-1])
		}
	}
}

// checkWhole: no call reports a part of a transaction, and a watch says once that it is synced
// (atomic).
func (h *history) checkWhole(t *trace, s *stretch) {
	synced := 0
	for i, e := range s.told {
		if e.op == chp.OpSynced {
			if synced++; synced == 2 {
				h.violate("atomic", "%s: a watch is synced at %d for a second time", t.name, e.seq)
			}
		}
		if e.transaction == 0 || synced == 0 && s.since == 0 || e.cause == chp.CauseResync {
			continue
		}
		if i+1 < len(s.told) {
			if next := s.told[i+1]; next.transaction == e.transaction && next.batch != e.batch {
				h.violate("atomic", "%s: %d of transaction %d comes without %d", t.name, e.seq, e.transaction, next.seq)
			}
		}
		if len(t.subtrees) == 0 && e.seq < e.transaction && (i+1 == len(s.told) || s.told[i+1].seq != e.seq+1) {
			h.violate("atomic", "%s: %d of transaction %d comes without %d", t.name, e.seq, e.transaction, e.seq+1)
		}
	}
}

// checkStream: what comes is ordered, unique and reliable, a watch that goes on misses nothing
// (resumable), and what a bookmark says is true (bookmarkable).
func (h *history) checkStream(t *trace, s *stretch, k *facts, seen map[int64]bool) {
	last := s.since // the last one that was told as it came
	synced := s.since != 0
	missing := "resumable"
	resynced := false // since the last one
	for _, e := range s.told {
		if !synced { // a part of the state
			if synced = e.op == chp.OpSynced; synced {
				last, missing = e.seq, "reliable"
			}
			continue
		}
		if e.cause == chp.CauseResync {
			resynced = true
			continue
		}
		mark, check := e.op == chp.OpSynced || e.op == chp.OpBookmark, missing
		if mark {
			check = "bookmarkable"
		}
		snapshot, upto := resynced, last // what a snapshot has brought is not told if it makes no difference
		for _, i := range s.client.installs {
			if i.at <= e.at && i.upto <= e.seq {
				upto = max(upto, i.upto)
			}
		}
		switch {
		case mark && e.seq < last && !snapshot:
			h.violate(check, "%s: %v at %d after %d", t.name, e.op, e.seq, last)
		case !mark && seen[e.seq] || !mark && e.seq == last:
			h.violate("unique", "%s: %q at %d comes again after %d", t.name, e.key, e.seq, last)
		case !mark && e.seq < last:
			h.violate("ordered", "%s: %q at %d comes after %d", t.name, e.key, e.seq, last)
		case !snapshot:
			h.checkBetween(t, k, check, upto, e)
		}
		if f, known := k.bySeq[e.seq]; known && !mark && (f.key != e.key || f.value != e.value) {
			h.violate("agreement", "sequence %d is %q=%d at %s and %q=%d at %s", e.seq, f.key, f.value, f.from, e.key, e.value, t.name)
		}
		seen[e.seq] = seen[e.seq] || !mark
		last, missing, resynced = max(last, e.seq), "reliable", false
	}
}

// checkBetween: nothing of the subtrees that others have came after a sequence and before an event.
func (h *history) checkBetween(t *trace, k *facts, check string, last int64, e told) {
	from, _ := slices.BinarySearch(k.sorted, last+1)
	for _, seq := range k.sorted[from:] {
		if seq > e.seq || seq == e.seq && (e.op == chp.OpSet || e.op == chp.OpDelete) {
			break
		}
		if f := k.bySeq[seq]; holds(t.subtrees, f.key) {
			h.violate(check, "%s: %v %d comes after %d without update %d of %q, which %s has", t.name, e.op, e.seq, last, seq, f.key, f.from)
		}
	}
}

// program watches a replica, is stopped, and goes on where it was: each time with another watch, and
// with another client if that one was closed.
type program struct {
	replica *replica
	trace   trace
	rng     *rand.Rand
	running sync.WaitGroup
	stop    context.CancelFunc
	resumed atomic.Int32 // how often it went on
	anew    atomic.Int32 // how often it had to begin anew
}

func newProgram(r *replica, subtrees []string, seed uint64) *program {
	p := &program{replica: r, rng: rand.New(rand.NewPCG(seed, 4))}
	p.trace = trace{name: "the program at " + r.name, subtrees: subtrees}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.running.Go(func() {
		for at := int64(0); ctx.Err() == nil; {
			at = p.watch(ctx, at)
			sleep(ctx, time.Duration(p.rng.IntN(100))*time.Millisecond)
		}
	})
	return p
}

// end stops the program for good.
func (p *program) end() {
	p.stop()
	p.running.Wait()
}

// watch watches for a while what comes after a sequence, and returns the one that it has reached.
func (p *program) watch(ctx context.Context, after int64) int64 {
	h := p.replica.history
	l := p.replica.now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.rng.IntN(700))*time.Millisecond)
	defer cancel()
	began := h.now()
	w, err := l.client.WatchWith(ctx, chp.WatchOptions{Since: after, Subtrees: p.trace.subtrees, Bookmarks: true})
	if err != nil {
		if errors.Is(err, chp.ErrCompacted) {
			p.anew.Add(1)
			return 0
		}
		return after // it is not connected, or was closed
	}
	defer w.Close()
	s := &stretch{client: l, began: began, since: after}
	p.trace.stretches = append(p.trace.stretches, s)
	if after != 0 {
		p.resumed.Add(1)
	}
	for batch := 1; ; batch++ {
		var bad error
		err := w.NextBatch(ctx, func(e chp.Event) bool {
			_, bad = s.note(e, batch, h.now())
			return bad == nil
		})
		if bad != nil {
			h.violate("mangled", "%s: %v", p.trace.name, bad)
		}
		if errors.Is(err, chp.ErrCompacted) {
			p.anew.Add(1)
			return 0
		}
		if err != nil || bad != nil {
			return s.position()
		}
	}
}

// traces makes two traces in which nothing is wrong: a plain watch of the scene, with two updates
// of a transaction behind it, and a program that is stopped twice.
func traces(all *life) (plain, program *trace) {
	all.events = append(all.events,
		event{seq: 107, key: "/a/k", value: 8, uuid: [16]byte{7}, cause: chp.CauseSet, live: true, at: 205 * ms, transaction: 108},
		event{seq: 108, key: "/b/k", value: 9, uuid: [16]byte{7}, cause: chp.CauseSet, live: true, at: 205 * ms, transaction: 108})
	change := func(i, batch int) told {
		e := all.events[i]
		op := chp.OpSet
		if e.value == 0 {
			op = chp.OpDelete
		}
		return told{op, e.cause, e.key, e.value, e.seq, e.transaction, batch, e.at}
	}
	mark := func(op chp.Op, seq int64, batch int, at time.Duration) told {
		return told{op: op, seq: seq, batch: batch, at: at}
	}
	plain = &trace{name: "plain", stretches: []*stretch{{client: all, began: 2 * ms, told: []told{
		change(0, 1), mark(chp.OpSynced, 101, 1, 16*ms), change(1, 2), change(2, 3), mark(chp.OpBookmark, 103, 4, 60*ms),
		change(3, 5), change(4, 6), change(5, 7), change(6, 8), change(7, 8), mark(chp.OpBookmark, 108, 9, 250*ms),
	}}}}
	program = &trace{name: "program", stretches: []*stretch{
		{client: all, began: 2 * ms, told: []told{change(0, 1), mark(chp.OpSynced, 101, 1, 16*ms), change(1, 2)}},
		{client: all, began: 60 * ms, since: 102, told: []told{change(2, 1), change(3, 1), mark(chp.OpSynced, 104, 2, 80*ms)}},
		{client: all, began: 210 * ms, since: 104, told: []told{change(4, 1), change(5, 1), change(6, 1), change(7, 1), mark(chp.OpSynced, 108, 2, 220*ms)}},
	}}
	return plain, program
}

// TestWatchChecks: each guarantee of a watch has a check that finds where it is broken, and nothing in
// sound traces.
func TestWatchChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		spoil  func(all *life, plain *stretch, program []*stretch)
		checks string // those that fail
	}{
		{"nothing", func(*life, *stretch, []*stretch) {}, ""},
		{"two updates in the wrong order", func(_ *life, plain *stretch, _ []*stretch) {
			plain.told[2], plain.told[3] = plain.told[3], plain.told[2]
		}, "ordered, reliable"},
		{"an update twice", func(_ *life, plain *stretch, _ []*stretch) { plain.told = slices.Insert(plain.told, 3, plain.told[2]) }, "unique"},
		{"an update twice, and another one in between", func(_ *life, plain *stretch, _ []*stretch) {
			plain.told = slices.Insert(plain.told, 4, plain.told[2])
		}, "unique"},
		{"a key twice in the state", func(_ *life, plain *stretch, _ []*stretch) { plain.told = slices.Insert(plain.told, 0, plain.told[0]) }, "unique"},
		{"a missing update", func(_ *life, plain *stretch, _ []*stretch) { plain.told = slices.Delete(plain.told, 2, 3) }, "reliable"},
		{"a missing deletion", func(_ *life, plain *stretch, _ []*stretch) { plain.told = slices.Delete(plain.told, 6, 7) }, "reliable"},
		{"a missing update, and a new snapshot", func(all *life, plain *stretch, _ []*stretch) {
			plain.told = slices.Delete(plain.told, 2, 3)
			all.installs = append(all.installs, install{50 * ms, 102})
		}, ""},
		{"a new snapshot without a difference, of which a slow reader hears late", func(all *life, plain *stretch, _ []*stretch) {
			plain.told = slices.Delete(plain.told, 3, 4) // up to 103
			plain.told[2].at = 59 * ms
			all.installs = append(all.installs, install{50 * ms, 103})
		}, ""},
		{"a missing update, and a new snapshot that is older", func(all *life, plain *stretch, _ []*stretch) {
			plain.told = slices.Delete(plain.told, 3, 4)
			all.installs = append(all.installs, install{50 * ms, 102})
		}, "bookmarkable"},
		{"what a new snapshot has brought", func(all *life, plain *stretch, _ []*stretch) {
			plain.told[2].cause, plain.told[2].seq = chp.CauseResync, 102
			all.installs = append(all.installs, install{50 * ms, 102})
		}, ""},
		{"another value than others have", func(_ *life, plain *stretch, _ []*stretch) { plain.told[2].value = 9 }, "agreement"},
		{"half of a transaction", func(_ *life, plain *stretch, _ []*stretch) { plain.told[9].batch++ }, "atomic"},
		{"a transaction of which the rest does not come", func(_ *life, plain *stretch, _ []*stretch) {
			plain.told = plain.told[:9]
		}, "atomic"},
		{"a state of two moments", func(_ *life, plain *stretch, _ []*stretch) {
			plain.told[1].seq = 102
			plain.told = slices.Delete(plain.told, 2, 3)
		}, "atomic"},
		{"a state that is ahead", func(_ *life, plain *stretch, _ []*stretch) { plain.told[0].seq, plain.told[0].value = 102, 2 }, "atomic"},
		{"synced twice", func(_ *life, plain *stretch, _ []*stretch) { plain.told[4].op = chp.OpSynced }, "atomic"},
		{"what was told before is told again", func(_ *life, _ *stretch, program []*stretch) {
			program[1].told = slices.Insert(program[1].told, 0, program[0].told[2])
		}, "unique"},
		{"a deletion is missing when it goes on", func(_ *life, _ *stretch, program []*stretch) {
			program[1].told = slices.Delete(program[1].told, 0, 1)
		}, "resumable"},
		{"an expiry is missing when it goes on", func(_ *life, _ *stretch, program []*stretch) {
			program[2].told = slices.Delete(program[2].told, 0, 1)
		}, "resumable"},
		{"it goes on elsewhere", func(_ *life, _ *stretch, program []*stretch) {
			program[2].since = 105
			program[2].told = program[2].told[1:]
		}, "resumable"},
		{"a bookmark that is ahead", func(_ *life, plain *stretch, _ []*stretch) { plain.told[4].seq = 104 }, "bookmarkable, unique"},
		{"a bookmark that is behind", func(_ *life, plain *stretch, _ []*stretch) { plain.told[4].seq = 102 }, "bookmarkable"},
		{"a bookmark that skips an update", func(_ *life, plain *stretch, _ []*stretch) { plain.told = slices.Delete(plain.told, 8, 10) }, "bookmarkable"},
		{"synced before everything has come", func(_ *life, _ *stretch, program []*stretch) {
			program[1].told = slices.Delete(program[1].told, 1, 2)
			program[2].since = 104
		}, "bookmarkable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, all, _ := scene()
			plain, program := traces(all)
			c.spoil(all, plain.stretches[0], program.stretches)
			k := h.collect([]*life{all})
			h.checkWatch(plain, k)
			h.checkWatch(program, k)
			failed := map[string]bool{}
			for _, v := range h.broken {
				failed[v.Check] = true
			}
			if got := strings.Join(slices.Sorted(maps.Keys(failed)), ", "); got != c.checks {
				t.Errorf("failed: %s, want %s\n%v", got, c.checks, h.broken)
			}
		})
	}
}
