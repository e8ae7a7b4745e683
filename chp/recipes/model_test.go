package recipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

// world is a map in memory whose clients lose their connections, see snapshots, and hear late. The
// clock is that of testing/synctest, so runs take no time.
type world struct {
	mu     sync.Mutex
	rand   *rand.Rand
	keys   map[string]*fact
	leases map[*fakeLease]*time.Timer // at the server: when they end
	log    []chp.Event                // number i has sequence i+1
	wake   chan struct{}

	tasks sync.WaitGroup
}

// fact is a key of the world.
type fact struct {
	event chp.Event
	with  *fakeLease
}

func newWorld(seed uint64) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 0)), keys: map[string]*fact{}, leases: map[*fakeLease]*time.Timer{}, wake: make(chan struct{})}
}

func (w *world) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n) == 0
}

func (w *world) pause(most time.Duration) {
	w.mu.Lock()
	d := time.Duration(w.rand.Int64N(int64(most)))
	w.mu.Unlock()
	time.Sleep(d)
}

// set sets a key that ends with a lease, or deletes it if there is none. w.mu must be held.
func (w *world) set(key string, value []byte, with *fakeLease) int64 {
	e := chp.Event{Op: chp.OpSet, Key: []byte(key), Value: value, Sequence: int64(len(w.log) + 1)}
	w.keys[key] = &fact{e, with}
	if with == nil {
		e.Op = chp.OpDelete
		delete(w.keys, key)
	}
	w.log = append(w.log, e)
	w.tell()
	return e.Sequence
}

// renew gives a lease its time, and some more. w.mu must be held.
func (w *world) renew(l *fakeLease) {
	if t := w.leases[l]; t != nil {
		t.Stop()
	}
	late := time.Duration(w.rand.Int64N(int64(l.ttl))) / 2
	w.leases[l] = time.AfterFunc(l.ttl+late, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.expire(l)
	})
}

// expire ends a lease. w.mu must be held.
func (w *world) expire(l *fakeLease) {
	if t := w.leases[l]; t != nil {
		t.Stop()
	}
	delete(w.leases, l)
	for key, f := range w.keys {
		if f.with == l {
			w.set(key, nil, nil)
		}
	}
}

func (w *world) tell() {
	close(w.wake)
	w.wake = make(chan struct{})
}

// holds reports whether a key is among the first of its line.
func (w *world) holds(key string, slots int) bool {
	if w.keys[key] == nil {
		return false
	}
	mine, before := w.keys[key].event.Sequence, 0
	for other, f := range w.keys {
		if lineOf(other) == lineOf(key) && f.event.Sequence < mine {
			before++
		}
	}
	return before < slots
}

// wire is a client of the world. Its requests are made in order, as long as it is connected.
type wire struct {
	w     *world
	ctx   context.Context
	calls chan *call
	cut   bool // guarded by w.mu
}

type call struct {
	ctx  context.Context
	do   func() (int64, error)
	seq  int64
	err  error
	done chan struct{}
}

func newWire(ctx context.Context, w *world) *wire {
	s := &wire{w: w, ctx: ctx, calls: make(chan *call, 100)}
	w.tasks.Go(func() { s.run(ctx) })
	return s
}

// connected waits for the connection.
func (s *wire) connected(ctx context.Context) bool {
	for {
		s.w.mu.Lock()
		cut, wake := s.cut, s.w.wake
		s.w.mu.Unlock()
		if !cut {
			return true
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return false
		}
	}
}

func (s *wire) setCut(cut bool) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.cut = cut
	s.w.tell()
}

func (s *wire) run(ctx context.Context) {
	for {
		var c *call
		select {
		case c = <-s.calls:
		case <-ctx.Done():
			return
		}
		if !s.connected(c.ctx) { // it was not sent
			continue
		}
		s.w.pause(20 * time.Millisecond)
		if !s.connected(ctx) { // what was sent is made later, though nobody waits for it
			return
		}
		c.seq, c.err = c.do()
		s.w.tasks.Go(func() {
			s.w.pause(20 * time.Millisecond)
			if s.connected(ctx) {
				close(c.done)
			}
		})
	}
}

func (s *wire) call(ctx context.Context, do func() (int64, error)) (int64, error) {
	c := &call{ctx: ctx, done: make(chan struct{})}
	c.do = func() (int64, error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		return do()
	}
	select {
	case s.calls <- c:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case <-c.done:
		return c.seq, c.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *wire) ready(context.Context) error { return nil }

func (s *wire) create(ctx context.Context, key string, value []byte, with lease) (int64, error) {
	return s.call(ctx, func() (int64, error) {
		l := with.(*fakeLease)
		if s.w.leases[l] == nil {
			return 0, chp.ErrLeaseEnded
		}
		return s.w.set(key, value, l), nil
	})
}

func (s *wire) remove(ctx context.Context, key string) error {
	_, err := s.call(ctx, func() (int64, error) {
		if s.w.keys[key] == nil {
			return 0, nil
		}
		return s.w.set(key, nil, nil), nil
	})
	return err
}

// fakeLease is a lease of the world, at its holder.
type fakeLease struct {
	s    *wire
	ttl  time.Duration
	done context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	deadline time.Time
}

func (s *wire) grant(ctx context.Context, ttl time.Duration) (lease, error) {
	l := &fakeLease{s: s, ttl: ttl, deadline: time.Now().Add(ttl)}
	l.done, l.end = context.WithCancel(s.ctx)
	_, err := s.call(ctx, func() (int64, error) { s.w.renew(l); return 0, nil })
	if err != nil {
		l.end()
		return nil, err
	}
	s.w.tasks.Go(l.run)
	return l, nil
}

func (l *fakeLease) run() {
	defer l.end()
	for {
		select {
		case <-time.After(l.ttl / 3):
		case <-l.done.Done():
			return
		}
		sent := time.Now()
		limited, cancel := context.WithDeadline(l.done, l.Deadline())
		_, err := l.s.call(limited, func() (int64, error) {
			if l.s.w.leases[l] == nil {
				return 0, chp.ErrLeaseEnded
			}
			l.s.w.renew(l)
			return 0, nil
		})
		cancel()
		if err != nil {
			return
		}
		l.mu.Lock()
		l.deadline = sent.Add(l.ttl)
		l.mu.Unlock()
	}
}

func (l *fakeLease) Done() <-chan struct{} { return l.done.Done() }
func (l *fakeLease) Err() error            { return l.done.Err() }
func (l *fakeLease) Close() error          { l.end(); return nil }

func (l *fakeLease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *fakeLease) Revoke(ctx context.Context) error {
	l.end()
	_, err := l.s.call(ctx, func() (int64, error) { l.s.w.expire(l); return 0, nil })
	return err
}

func (s *wire) watch() (feed, error) { return &fakeFeed{s: s, shown: map[string]int64{}}, nil }

// fakeFeed is a watch of the world.
type fakeFeed struct {
	s     *wire
	shown map[string]int64 // sequences, of the keys as reported
	at    int              // how much of the log it has reported
	began bool
}

func (f *fakeFeed) Close() error { return nil }

func (f *fakeFeed) NextBatch(ctx context.Context, do func(chp.Event) bool) error {
	w := f.s.w
	for {
		w.mu.Lock()
		wake, more := w.wake, f.at < len(w.log) || !f.began
		w.mu.Unlock()
		if more {
			break
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.pause(20 * time.Millisecond)
	if !f.s.connected(ctx) {
		return ctx.Err()
	}
	w.mu.Lock()
	what := w.rand.IntN(30)
	var events []chp.Event
	switch {
	case what == 0 && f.began:
		w.mu.Unlock()
		return chp.ErrLagged
	case what < 4 || !f.began: // a new snapshot: the differences, in no order
		for key, fact := range w.keys {
			if f.shown[key] != fact.event.Sequence {
				events = append(events, fact.event)
			}
		}
		for key := range f.shown {
			if w.keys[key] == nil {
				events = append(events, chp.Event{Op: chp.OpDelete, Key: []byte(key), Cause: chp.CauseResync})
			}
		}
		slices.SortFunc(events, func(a, b chp.Event) int { return slices.Compare(a.Key, b.Key) })
		w.rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		if !f.began {
			events = append(events, chp.Event{Op: chp.OpSynced})
		}
		f.at, f.began = len(w.log), true
	default:
		n := min(1+w.rand.IntN(3), len(w.log)-f.at)
		events = slices.Clone(w.log[f.at : f.at+n])
		f.at += n
	}
	w.mu.Unlock()
	for _, e := range events {
		if f.shown[string(e.Key)] = e.Sequence; e.Op == chp.OpDelete {
			delete(f.shown, string(e.Key))
		}
		do(e)
	}
	return nil
}

// TestLocksAgainstModel: in any order of arrivals, departures, cut connections and expiries no
// lock is believed to be held that the map does not have as held, tokens only grow, and everybody gets
// the lock in the end.
func TestLocksAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Rounds(300)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { explore(t, seed) }) })
	}
}

func explore(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(seed)
	slots := 1 + int(seed%3)/2 // a third of the runs is of a semaphore
	const ttl, members = 300 * time.Millisecond, 5
	var mu sync.Mutex
	held := map[*Lock]bool{}
	last, granted := int64(0), 0
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		for l := range held {
			if l.Err() == nil && !w.holds(l.key, slots) {
				t.Errorf("%s is believed to be held", l.key)
			}
		}
	}
	over := false
	ended := func() bool { mu.Lock(); defer mu.Unlock(); return over }
	var running sync.WaitGroup
	var queues []*queue
	var wires []*wire
	for range members {
		s := newWire(ctx, w)
		q, err := startQueue(s, "/l/", Options{TTL: ttl})
		testenv.Must(t, err)
		queues, wires = append(queues, q), append(wires, s)
		running.Go(func() {
			for again := true; again; {
				again = !ended() // once more when all is well
				waiting, stop := context.WithCancel(ctx)
				if again && w.chance(4) {
					waiting, stop = context.WithTimeout(ctx, 200*time.Millisecond)
				}
				l, err := q.acquire(waiting, "/l/", slots, nil, w.chance(4) && again)
				stop()
				if err != nil {
					if !again {
						t.Errorf("in the end: %v", err)
					}
					w.pause(100 * time.Millisecond)
					continue
				}
				mu.Lock()
				if l.Token() <= last && slots == 1 {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				granted++
				held[l] = true
				mu.Unlock()
				check()
				select {
				case <-l.Done():
				case <-time.After(time.Duration(seed*7%200) * time.Millisecond):
				}
				check()
				mu.Lock()
				delete(held, l)
				mu.Unlock()
				leaving, stop := context.WithTimeout(ctx, time.Second)
				l.Unlock(leaving)
				stop()
			}
		})
	}
	for range 300 {
		w.pause(50 * time.Millisecond)
		check()
		w.mu.Lock()
		s, cut := wires[w.rand.IntN(members)], w.rand.IntN(3) == 0
		w.mu.Unlock()
		s.setCut(cut)
	}
	for _, s := range wires {
		s.setCut(false)
	}
	mu.Lock()
	over = true
	mu.Unlock()
	running.Wait()
	if granted < members+10 {
		t.Errorf("the lock was held %d times", granted)
	}
	for _, q := range queues {
		q.close()
	}
	cancel()
	w.tasks.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.leases {
		t.Stop()
	}
}
