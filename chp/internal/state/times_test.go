package state

import (
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// timed is a state of one server of a pair, and when the keys in it end in truth: the
// time to live after the update was accepted, wherever that was.
type timed struct {
	*State
	ends map[string]time.Duration
}

// apply applies an entry that was accepted at a time, of which the entry may say less.
func (s *timed) apply(e *Entry, accepted time.Duration) {
	for _, span := range e.Spans {
		r := kvmsg.Record(e.Wire[span.Start:span.End])
		if ttl := kvmsg.TTLOf(r.Props()); ttl > 0 && span.Tag&kvmsg.TagDelete == 0 {
			s.ends[string(r.Key())] = accepted + ttl
		} else {
			delete(s.ends, string(r.Key()))
		}
	}
	s.Apply(e)
}

// check compares what is left of times with the truth. late is how much later they may end.
func (s *timed) check(t *testing.T, late time.Duration) {
	t.Helper()
	c := s.Image()
	defer c.Release()
	c.Records(func(r kvmsg.Record) bool {
		end, ok := s.ends[string(r.Key())]
		left := c.Deadlines.Remaining(r)
		if want := end - timer.Now(); ok != (left > 0) || ok && (left < want || left > max(want, 1)+late) {
			t.Errorf("%s has %v left of %v: %v", r.Key(), left, want, ok)
		}
		return !t.Failed()
	})
}

// TestTimesToLiveNeverEndEarly: whatever order of updates that wait to be published, batches
// and maps that are long on their way, takeovers and expiries, no key ends before its time
// to live after its update was accepted, at either server of a pair; and not later by more
// than what the way took.
func TestTimesToLiveNeverEndEarly(t *testing.T) {
	t.Parallel()
	const longest = 3 * time.Second // on the way
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			m := &maker{rng: rng, last: 1000}
			active, passive := &timed{New(1000), map[string]time.Duration{}}, &timed{New(1000), map[string]time.Duration{}}
			var way []*Entry // to the passive server
			pause := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
			takeovers := 0
			// Each takeover adds to what the new active server's keys may be late.
			late := func() time.Duration { return time.Duration(takeovers+1) * (longest + 2*time.Millisecond) }
			copied := func() {
				c := active.Image()
				defer c.Release()
				passive = &timed{New(0), maps.Clone(active.ends)}
				for p := range c.Sections(1 << 10) {
					p.Body = append([]byte(nil), p.Body...) // it is on its way
					pause(longest / 100)
					if err := passive.Restore(p, timer.Now()); err != nil {
						t.Fatal(err)
					}
				}
				way = nil
			}
			for range 300 {
				switch op := rng.IntN(20); {
				case op < 9:
					e := m.next()
					if rng.IntN(4) == 0 {
						pause(2 * time.Second) // it is held
					}
					active.apply(e, e.At)
					way = append(way, stamped(e))
				case op < 13:
					for ; len(way) > 0 && rng.IntN(8) > 0; way = way[1:] {
						e := *way[0]
						accepted, wire := e.At, e.Head.Append(nil)
						if rng.IntN(4) == 0 {
							pause(longest)
						}
						var ok bool
						if e.Head, ok = ParseHead(wire); !ok {
							t.Fatalf("%x is no head", wire)
						}
						passive.apply(&e, accepted)
					}
				case op < 17:
					pause(20 * time.Second)
				case op < 18:
					copied()
				case op < 19:
					active, takeovers = passive, takeovers+1
					m.term += 1 << ReignBits
					copied()
				default:
					if e := expire(m, active.State); e != nil {
						for _, span := range e.Spans {
							key := string(kvmsg.Record(e.Wire[span.Start:span.End]).Key())
							if left := active.ends[key] - timer.Now(); left > 0 {
								t.Errorf("%s ends %v too early", key, left)
							}
						}
						active.apply(e, e.At)
						way = append(way, stamped(e))
					}
				}
				active.check(t, late())
				passive.check(t, late())
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}
