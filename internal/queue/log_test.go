package queue

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLog: each follower gets the messages added since, in order and once, with those
// sent to it alone in their places; a log keeps no piece that all have read, and lent
// bytes are released in the end.
func TestLog(t *testing.T) {
	t.Parallel()
	type reader struct {
		Outbox
		want []byte
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		var log Log
		lent := newLender()
		readers := make([]*reader, 1+r.IntN(5))
		for i := range readers {
			readers[i] = new(reader)
			readers[i].Init(HWM{Messages: Unbounded, Bytes: Unbounded}, false)
		}
		take := func(p *reader) {
			if len(p.want) == 0 {
				return
			}
			got, l := takenFrom(t, &p.Outbox)
			if !bytes.Equal(got, p.want) {
				t.Fatalf("seed %d: %d bytes were taken, which are not the %d that were sent", seed, len(got), len(p.want))
			}
			l.Clear()
			p.want = nil
		}
		for n := range 300 {
			p := readers[r.IntN(len(readers))]
			m := wire(fmt.Sprint(n), string(make([]byte, r.IntN(100)<<r.IntN(9))))
			switch k := r.IntN(10); {
			case k < 5:
				for _, p := range readers {
					if p.follows.log != nil {
						p.want = append(p.want, m...)
					}
				}
				if k == 0 {
					log.AddRuns(append(wire("x"), m...), []Run{{len(wire("x")), len(wire("x")) + len(m)}}, 1)
				} else {
					log.AddWire(m, 1, lent)
				}
			case k < 8:
				take(p)
			case p.follows.log != nil:
				var scratch Wire
				p.Unfollow(&scratch)
				p.OfferWire(nil, m, 1, lent)
				p.want = append(p.want, m...)
			case p.Follow(&log) != (len(p.want) == 0):
				t.Fatalf("seed %d: an outbox with %d bytes follows or does not", seed, len(p.want))
			}
			if s := p.Status(); s.Bytes != len(p.want) {
				t.Fatalf("seed %d: %d bytes wait, want %d", seed, s.Bytes, len(p.want))
			}
		}
		for _, p := range readers {
			take(p)
		}
		if len(log.pieces) > 0 || log.stage != nil {
			t.Fatalf("seed %d: the log keeps %d pieces that all have read", seed, len(log.pieces))
		}
		if n := lent.Refs.Load(); n != 0 {
			t.Fatalf("seed %d: %d references to what was lent are left", seed, n)
		}
	}
}

// TestLogStuck: an outbox from which nothing is taken is found when it is over a
// high-water mark, and then holds on to no part of the log.
func TestLogStuck(t *testing.T) {
	t.Parallel()
	var log Log
	limits := HWM{Messages: 100, Bytes: Unbounded}
	good, stuck := newOutbox(limits), newOutbox(limits)
	if !good.Follow(&log) || !stuck.Follow(&log) {
		t.Fatal("an empty outbox does not follow")
	}
	for n := range 100 {
		if o := log.Overtaken(limits); o != nil {
			t.Fatalf("%d messages are too many", n)
		}
		log.Add([][]byte{make([]byte, 100)}, 102)
		_, l := takenFrom(t, good)
		l.Clear()
	}
	if o := log.First(); o != stuck {
		t.Errorf("%p has read least, want %p", o, stuck)
	}
	if o := log.Overtaken(limits); o != stuck {
		t.Errorf("%p is over the mark, want %p", o, stuck)
	}
	var scratch Wire
	if !stuck.Unfollow(&scratch) || stuck.Unfollow(&scratch) {
		t.Error("Unfollow does not say whether it followed")
	}
	if s := stuck.Status(); s.Messages != 100 || s.Bytes != 100*102 {
		t.Errorf("%d messages of %d bytes wait", s.Messages, s.Bytes)
	}
	for i := range stuck.queue.Items {
		if stuck.queue.Items[i].owner != nil {
			t.Error("it holds on to a part of the log")
		}
	}
	if len(log.pieces) > 0 || log.stage != nil || log.First() != good {
		t.Errorf("the log keeps %d pieces", len(log.pieces))
	}
}

// TestLogYields: of several followers that a log wakes, the first few are to yield if it
// has just woken several, but not after a pause, and not if there is only one.
func TestLogYields(t *testing.T) {
	t.Parallel()
	for followers := range 2 * yielders {
		synctest.Test(t, func(t *testing.T) {
			var log Log
			var yields atomic.Int64
			gone := make(chan struct{})
			var writers sync.WaitGroup
			for range followers {
				o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
				o.Launch(func() {}, Direct{}, true)
				if !o.Follow(&log) {
					t.Fatal("an empty outbox does not follow")
				}
				writers.Go(func() {
					var l Load
					for o.Take(&l, gone, func() {}) {
						if o.follows.yields.Load() {
							yields.Add(1)
						}
						l.Clear()
					}
				})
			}
			several := int64(min(followers, yielders))
			if followers == 1 {
				several = 0
			}
			for i, step := range []struct {
				pause time.Duration
				want  int64
			}{{time.Hour, 0}, {streamPause, several}, {streamPause / 2, several}, {streamPause + 1, 0}, {1, several}} {
				synctest.Wait() // all sleep
				time.Sleep(step.pause)
				yields.Store(0)
				log.AddWire(wire("message"), 1, nil)
				synctest.Wait()
				if n := yields.Load(); n != step.want {
					t.Errorf("%d followers, message %d after %v: %d yield, want %d", followers, i, step.pause, n, step.want)
				}
			}
			close(gone)
			writers.Wait()
		})
	}
}
