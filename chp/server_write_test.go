package chp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/internal/interop"
	"clustermap/internal/store"
	"clustermap/internal/testenv"
)

// An update that a server makes in its own process goes to clients like one of theirs,
// with consecutive sequences and its properties.
func TestServerSetIsPublished(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: hang})
	base := s.Sequence()
	plain := newPlainClient(t, s)
	seq, err := s.SetSync(ctx, "/a", []byte("one"), WithTTL(time.Hour), WithProperty("by", "me"))
	must(t, err)
	must(t, s.Set(ctx, "/b", []byte("two")))
	gone, err := s.DeleteSync(ctx, "/a")
	must(t, err)
	must(t, s.Delete(ctx, "/absent"))
	if seq != base+1 || gone != base+3 || s.Sequence() != base+4 {
		t.Errorf("sequences %d and %d, in the end %d; want %d, %d, %d", seq, gone, s.Sequence(), base+1, base+3, base+4)
	}
	for _, want := range []kv{
		{"/a", seq, nil, "ttl=3600\nby=me\n", "one"}, {"/b", seq + 1, nil, "", "two"},
		{"/a", gone, nil, "", ""}, {"/absent", gone + 1, nil, "", ""},
	} {
		got := plain.next()
		got.uuid = nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("published %+v, want %+v", got, want)
		}
	}
	c := startClient(t, s, ClientOptions{})
	waitEqual(t, s, c)
	if st := s.Stats(); st.Updates != 4 || st.Keys != 1 || len(st.Refused) != 0 {
		t.Errorf("%d updates, %d keys, refused %v", st.Updates, st.Keys, st.Refused)
	}
}

// A client on libzmq sees the updates that the server makes, before and after it joined.
func TestInteropServerSet(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, ServerOptions{HeartbeatInterval: 50 * time.Millisecond})
			must(t, s.Set(ctx, "/before", []byte("1")))
			p := libzmqClient(t, s, "--style", style)
			var b Batch
			for i := range 1000 {
				b.Set(fmt.Sprintf("/n/%d", i), fmt.Appendf(nil, "%d", i))
			}
			b.Delete("/n/500")
			must(t, s.Apply(ctx, &b))
			must(t, s.Set(ctx, "/brief", []byte("v"), WithTTL(50*time.Millisecond)))
			eventually(t, "the key expires", func() bool { _, ok := s.Get("/brief"); return !ok })
			must(t, s.Set(ctx, "/last", []byte("end")))
			wantLibzmq(t, s, p)
			p.Call(interop.Op{"op": "wait", "key": []byte("/last"), "value": []byte("end")}, nil)
		})
	}
}

// Each reason for which a server does not take an update of its own has its error, and
// nothing is updated.
func TestServerSetErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{MaxValueSize: 1000, MaxMapBytes: 2000})
	must(t, s.Set(ctx, "/k", make([]byte, 900)))
	base := s.Sequence()
	var batch Batch
	batch.Set("/fine", []byte("v"))
	batch.Set("", []byte("v"))
	var large Batch
	large.Set("/fine", []byte("v"))
	large.Set("/large", make([]byte, 1001))
	refused := func(r Reason) error { return &MessageError{Reason: r} }
	for _, c := range []struct {
		name string
		err  error
		want []error
	}{
		{"empty value", s.Set(ctx, "/k", nil), []error{ErrEmptyValue}},
		{"empty key", s.Set(ctx, "", []byte("v")), []error{refused(ReasonKey)}},
		{"reserved key", s.Delete(ctx, "KTHXBAI"), []error{refused(ReasonReservedKey)}},
		{"ttl", s.Set(ctx, "/k", []byte("v"), WithTTL(-1)), []error{refused(ReasonTTL)}},
		{"property", s.Set(ctx, "/k", []byte("v"), WithProperty("", "")), []error{refused(ReasonProperties)}},
		{"large value", s.Set(ctx, "/k", make([]byte, 1001)), []error{ErrRefused, refused(ReasonValueTooLarge)}},
		{"full", s.Set(ctx, "/l", make([]byte, 1000)), nil},
		{"full", s.Set(ctx, "/m", make([]byte, 1000)), []error{ErrRefused, refused(ReasonMapFull)}},
		{"batch", s.Apply(ctx, &batch), []error{refused(ReasonKey)}},
		{"large value in a batch", s.Apply(ctx, &large), []error{ErrRefused, refused(ReasonValueTooLarge)}},
	} {
		if c.want == nil {
			must(t, c.err)
		}
		for _, want := range c.want {
			if !errors.Is(c.err, want) {
				t.Errorf("%s: %v; want %v", c.name, c.err, want)
			}
		}
	}
	if s.Sequence() != base+1 || s.Len() != 2 {
		t.Errorf("%d updates, %d keys; want 1 and 2", s.Sequence()-base, s.Len())
	}
	if n := s.Stats().Refused[ReasonMapFull]; n != 1 {
		t.Errorf("%d updates counted as refused", n)
	}
	if seq, err := s.SetSync(ctx, "/m", make([]byte, 1000)); seq != 0 || !errors.Is(err, ErrRefused) {
		t.Errorf("SetSync of what does not fit: %d, %v", seq, err)
	}

	must(t, s.Close())
	for _, err := range []error{s.Set(ctx, "/k", []byte("v")), s.Delete(ctx, "/k"), s.Apply(ctx, &large)} {
		if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrRefused) {
			t.Errorf("after Close: %v", err)
		}
	}
	if err := s.Set(ctx, "/k", []byte("v")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Models that lack deletions and properties refuse them in the server's process too.
func TestServerSetModel(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{Model: 4})
	must(t, s.Set(ctx, "/k", []byte("v")))
	var b Batch
	b.Set("/l", []byte("v"))
	b.Delete("/k")
	for _, err := range []error{s.Delete(ctx, "/k"), s.Set(ctx, "/k", []byte("v"), WithTTL(time.Hour)), s.Apply(ctx, &b)} {
		if !errors.Is(err, ErrModel) {
			t.Errorf("%v, want ErrModel", err)
		}
	}
	if s.Len() != 1 {
		t.Errorf("%d keys", s.Len())
	}
}

// Set needs no Serve: earlier updates are there when clients come, and keys that expired
// meanwhile are deleted when the server serves.
func TestServerSetBeforeServe(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, err := NewServer(ServerOptions{Logger: quiet()})
	must(t, err)
	must(t, s.Set(ctx, "/early", []byte("1")))
	_, err = s.SetSync(ctx, "/brief", []byte("1"), WithTTL(time.Millisecond))
	must(t, err)
	must(t, s.Listen(ctx))
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	c := startClient(t, s, ClientOptions{})
	must(t, c.WaitActive(ctx))
	eventually(t, "one key expires", func() bool { return c.Len() == 1 })
	if v, _ := c.Get("/early"); string(v) != "1" {
		t.Errorf("the client has %q", v)
	}
	must(t, s.Close())
	must(t, <-served)
}

// hold makes a server's updates wait to be committed; the function that it returns ends
// that.
func hold(s *Server) (release func()) {
	g := holdAfter(s, s.Sequence())
	return func() { g.commit(math.MaxInt64) }
}

// gate is a journal that commits up to a sequence, as a test says. The servers of tests have
// one from the start, since nothing may replace a journal later.
type gate struct {
	journal.Journal

	// Guarded by the sequencer's mutex.
	q    *order.Sequencer
	upto int64
	age  time.Duration // of the batches when they are appended
}

// gated gives a server that does not serve yet a gate, which is open.
func gated(s *Server) *gate {
	q := &s.sequencer
	g, ok := q.Journal().(*gate)
	if !ok {
		q.Wrap(func(j journal.Journal) journal.Journal {
			g = &gate{Journal: j, q: q, upto: math.MaxInt64}
			return g
		})
	}
	return g
}

// holdAfter makes the updates of a server wait that follow a sequence.
func holdAfter(s *Server, sequence int64) *gate {
	g := gated(s)
	g.q.Between(func(*order.Moment) { g.upto = sequence })
	return g
}

func (g *gate) AtOnce() bool { return g.upto == math.MaxInt64 && g.Journal.AtOnce() }

func (g *gate) Append(h state.Head, pieces []store.Piece, held int) journal.Index {
	h.At -= g.age
	return g.Journal.Append(h, pieces, held)
}

func (g *gate) Committed(i journal.Index, last int64) bool {
	return last <= g.upto && g.Journal.Committed(i, last)
}

// commit commits up to a sequence.
func (g *gate) commit(sequence int64) {
	g.q.Between(func(*order.Moment) { g.upto = sequence })
	g.q.Committed()
	g.q.Wake()
}

// ordered returns the sequence of the last update that a server has ordered.
func (s *Server) ordered() (last int64) {
	s.sequencer.Between(func(now *order.Moment) { last = now.Newest.Last })
	return last
}

// SetSync and Flush wait until an update is published; Set does not.
func TestServerSetSyncWaits(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	release := hold(s)
	base := s.Sequence()
	must(t, s.Set(ctx, "/a", []byte("1")))
	if v, ok := s.Get("/a"); ok || s.Sequence() != base {
		t.Errorf("value %q, sequence %d; want none, %d", v, s.Sequence(), base)
	}
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if seq, err := s.SetSync(soon, "/a", []byte("2")); seq != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("SetSync returned %d, %v before the update was published", seq, err)
	}
	if err := s.Flush(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Flush: %v", err)
	}
	synced := make(chan int64, 1)
	go func() {
		seq, err := s.SetSync(ctx, "/a", []byte("3"))
		if err != nil {
			t.Error(err)
		}
		synced <- seq
	}()
	eventually(t, "the update is ordered", func() bool { return s.ordered() == base+3 })
	release()
	if seq := <-synced; seq != base+3 {
		t.Errorf("sequence %d, want %d", seq, base+3)
	}
	if v, _ := s.Get("/a"); string(v) != "3" {
		t.Errorf("value %q when it is published", v)
	}
	must(t, s.Flush(ctx))
}

// While the server takes no updates, Set waits: for the end of that, of its context, or
// of the server.
func TestServerSetWaitsForRoom(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	halt := func(s *Server, on bool) { s.sequencer.Halt(on) }
	s := startServer(t, ServerOptions{})
	halt(s, true)
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := s.Set(soon, "/a", []byte("1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Set: %v", err)
	}
	set := testenv.Blocked(t, "chp.(*Server).Set", func() error { return s.Set(ctx, "/b", []byte("1")) })
	if len(set) != 0 {
		t.Errorf("Set did not wait: %v", <-set)
	}
	halt(s, false)
	must(t, <-set)
	if _, ok := s.Get("/a"); ok || s.Len() != 1 {
		t.Errorf("%d keys, /a is there: %v", s.Len(), ok)
	}

	halt(s, true)
	set = testenv.Blocked(t, "chp.(*Server).Set", func() error { return s.Set(ctx, "/c", []byte("1")) })
	must(t, s.Close())
	if err := <-set; !errors.Is(err, ErrClosed) {
		t.Errorf("Set while the server closes: %v", err)
	}
}

// Uncommitted updates are bounded; beyond the bound Set waits.
func TestServerSetHeldIsBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	release := hold(s)
	const size, writers = 1 << 20, 4
	var sets []<-chan error
	for w := range writers {
		sets = append(sets, testenv.Blocked(t, "chp.(*Server).Set", func() (err error) {
			for i := 0; i < 2*order.MaxHeld/size/writers && err == nil; i++ {
				err = s.Set(ctx, fmt.Sprintf("/%d/%d", w, i), make([]byte, size))
			}
			return err
		}))
	}
	q := &s.sequencer
	held := q.Held
	eventually(t, "the bound is reached", func() bool { return held() >= order.MaxHeld })
	if !slices.ContainsFunc(sets, func(set <-chan error) bool { return len(set) == 0 }) {
		t.Error("Set did not wait")
	}
	if n := held(); n > order.MaxHeld+2*size {
		t.Errorf("%d bytes are held, the bound is %d", n, order.MaxHeld)
	}
	release()
	for _, set := range sets {
		must(t, <-set)
	}
}

// SetSync ends with the server, and with the server's time as the active one.
func TestServerSetSyncEnds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	defer hold(s)()
	synced := make(chan error, 1)
	set := func() {
		last := s.ordered()
		before, _ := s.Get("/a")
		next := append(before, 'x')
		go func() {
			_, err := s.SetSync(ctx, "/a", next)
			synced <- err
		}()
		eventually(t, "the update is ordered", func() bool { return s.ordered() > last })
	}
	set()
	q := &s.sequencer
	q.Yield() // as Pair.Yield does
	q.Wake()
	if err := <-synced; !errors.Is(err, ErrUncertain) || !errors.Is(err, ErrStandby) {
		t.Errorf("when the server is not active any more: %v", err)
	}
	q.Lead(0, false, 0, -1)
	set()
	must(t, s.Close())
	if err := <-synced; !errors.Is(err, ErrClosed) {
		t.Errorf("when the server closes: %v", err)
	}
}

// While a subscriber cannot keep up, Set is delayed, and the delay ends with the context
// and with the server.
func TestServerSetIsPaced(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	s.local.Init(&s.sequencer, order.NewPacer(1, func() float64 { return 1 })) // a byte a second
	value := make([]byte, order.PacerLook)
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := s.Set(soon, "/a", value); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Set: %v", err)
	}
	var sets []<-chan error
	for range 2 {
		set := testenv.Blocked(t, "chp.(*Server).Set", func() error { return s.Set(ctx, "/b", value) })
		if len(set) != 0 {
			t.Error("Set was not delayed")
		}
		sets = append(sets, set)
	}
	must(t, s.Close())
	for _, set := range sets {
		if err := <-set; !errors.Is(err, ErrClosed) {
			t.Errorf("Set while the server closes: %v", err)
		}
	}
	if s.Len() != 0 {
		t.Errorf("%d keys", s.Len())
	}
}

// Many goroutines of the server and clients write at the same time; every replica has
// the server's map.
func TestServerSetConcurrently(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	base := s.Sequence()
	c := startClient(t, s, ClientOptions{})
	const writers, updates = 8, 300
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			last := int64(0)
			for i := range updates {
				key, value := fmt.Sprintf("/%d", i%50), fmt.Appendf(nil, "%d of %d", i, w)
				var err error
				switch {
				case w == 0:
					err = c.Set(ctx, key, value)
				case i%10 == 9:
					var b Batch
					b.Set(key, value)
					err = s.Apply(ctx, &b)
				case i%10 == 8:
					err = s.Delete(ctx, key)
				default:
					var seq int64
					if seq, err = s.SetSync(ctx, key, value); seq <= last {
						t.Errorf("sequence %d after %d", seq, last)
					}
					last = seq
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	must(t, c.Flush(ctx))
	if n := s.Sequence() - base; n != writers*updates {
		t.Errorf("%d updates, want %d", n, writers*updates)
	}
	waitEqual(t, s, c)
	if gaps := c.Stats().Gaps; gaps != 0 {
		t.Errorf("the client saw %d gaps", gaps)
	}
}

// A batch is applied in order and in parts, is not changed by it, and the updates that
// fit are applied if the map is full.
func TestServerApply(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{MaxMapBytes: 4 * order.LocalPart})
	c := startClient(t, s, ClientOptions{})
	var b Batch
	must(t, s.Apply(ctx, &b)) // empty
	for i := range 30 {
		b.Set(fmt.Sprintf("/%d", i%10), make([]byte, order.LocalPart/10))
		b.Set("/last", fmt.Appendf(nil, "%d", i))
	}
	b.Delete("/3")
	for range 2 {
		base := s.Sequence()
		must(t, s.Apply(ctx, &b))
		must(t, s.Flush(ctx))
		if seq := s.Sequence(); seq != base+61 || b.Len() != 61 {
			t.Errorf("sequence %d, want %d", seq, base+61)
		}
		if v, _ := s.Get("/last"); string(v) != "29" || s.Len() != 10 {
			t.Errorf("%q is the last value, %d keys", v, s.Len())
		}
	}
	b.Reset()
	for i := range 50 {
		b.Set(fmt.Sprintf("/more/%d", i), make([]byte, order.LocalPart/10))
	}
	b.Set("/last", []byte("x"))
	sum := string(b.wire)
	if err := s.Apply(ctx, &b); !errors.Is(err, ErrRefused) || !errors.Is(err, &MessageError{Reason: ReasonMapFull}) {
		t.Errorf("what does not fit: %v", err)
	}
	if v, _ := s.Get("/last"); string(v) != "x" {
		t.Errorf("%q is the last value", v)
	}
	if b.Len() != 51 || string(b.wire) != sum || b.record(50).Seq() != 0 {
		t.Error("Apply changed the batch")
	}
	waitEqual(t, s, c)
}

// Updates that SetSync has acknowledged with a log that is flushed each time are there
// when the server begins again.
func TestServerSetIsDurable(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir), Sync: commit.Always(), Logger: quiet()})
	_, err := s.SetSync(ctx, "/synced", []byte("1"))
	must(t, err)
	if s.Sequence() != s.live.Now().Last() {
		t.Error("SetSync did not wait for the disk")
	}
	must(t, s.Set(ctx, "/set", []byte("2"), WithTTL(time.Hour)))
	_, err = s.DeleteSync(ctx, "/synced")
	must(t, err)
	seq := s.Sequence()
	stop()
	s, stop = serveUntil(t, ServerOptions{Log: openLog(t, dir), Logger: quiet()})
	defer stop()
	if v, _ := s.Get("/set"); string(v) != "2" || s.Len() != 1 || s.Sequence() < seq {
		t.Errorf("%q, %d keys, sequence %d; want 2, 1, at least %d", v, s.Len(), s.Sequence(), seq)
	}
}

// If the log fails, SetSync does not succeed, and later calls say that the server is
// closed or the log has failed.
func TestServerSetLogFails(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	log := &failingLog{openLog(t, t.TempDir()), make(chan struct{})}
	s, err := NewServer(ServerOptions{Log: log, Sync: commit.Always(), Logger: quiet()})
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	<-s.Ready()
	_, err = s.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	close(log.fail)
	_, err = s.SetSync(ctx, "/a", []byte("2"))
	if err == nil {
		t.Fatal("SetSync succeeded")
	}
	if !errors.Is(err, ErrClosed) && !strings.Contains(err.Error(), "log failed") {
		t.Errorf("SetSync: %v", err)
	}
	if err := <-served; err == nil {
		t.Error("Serve returned nil")
	}
	if err := s.Set(ctx, "/a", []byte("1")); !errors.Is(err, ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

// In a pair the active server takes updates and the other one has them; the passive one
// refuses its own with ErrStandby, until it takes over.
func TestServerSetInPair(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	po.Pair.Timeout, bo.Pair.Timeout = time.Hour, time.Hour // no server is taken for dead
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	if err := backup.Set(ctx, "/a", []byte("1")); !errors.Is(err, ErrStandby) {
		t.Errorf("a server that is not active: %v", err)
	}
	eventually(t, "the primary is active", primary.active)
	_, err := primary.SetSync(ctx, "/before", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync2)
	seq, err := primary.SetSync(ctx, "/a", []byte("1"), WithTTL(time.Hour))
	must(t, err)
	if v, _ := backup.Get("/a"); string(v) != "1" {
		t.Errorf("the backup has %q of what was acknowledged", v)
	}
	if err := backup.Set(ctx, "/a", []byte("2")); !errors.Is(err, ErrStandby) {
		t.Errorf("the passive server: %v", err)
	}
	must(t, primary.pair.Handover(ctx, ""))
	eventually(t, "the backup is active", backup.active)
	eventually(t, "the primary is passive", func() bool { return errors.Is(primary.Set(ctx, "/a", []byte("3")), ErrStandby) })
	after, err := backup.SetSync(ctx, "/a", []byte("4"))
	must(t, err)
	if after <= seq {
		t.Errorf("sequence %d after %d", after, seq)
	}
	eventually(t, "the primary follows", func() bool { v, _ := primary.Get("/a"); return string(v) == "4" })
}

// Set and SetSync do not allocate when nothing has to wait.
func TestServerSetAllocatesNothing(t *testing.T) {
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: hang})
	w, err := s.Watch()
	must(t, err)
	defer w.Close()
	drained := func(Event) bool { return true }
	value := make([]byte, 100)
	var b Batch
	for i := range 64 {
		b.Set(fmt.Sprintf("/batch/%d", i), value)
	}
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Set", func() error { return s.Set(ctx, "/some/key", value) }},
		{"SetSync", func() error { _, err := s.SetSync(ctx, "/some/key", value, WithProperty("a", "b")); return err }},
		{"Apply", func() error { return s.Apply(ctx, &b) }},
	} {
		run := func() {
			if err := c.call(); err != nil {
				t.Error(err)
			}
			if err := w.NextBatch(ctx, drained); err != nil {
				t.Error(err)
			}
		}
		// 5,000 calls until segments and scratch have their sizes.
		if n := testenv.Allocs(5000, 2000, run); n > 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}
