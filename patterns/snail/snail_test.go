package snail

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// TestStop: a message that is too old ends the subscriber, as in the guide: it
// disconnects, and all receive calls fail.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{MaxDelay: time.Second})
	r.send("a", "b", "c")
	r.wants("a", 0)
	r.pass(time.Second)
	r.wants("b", time.Second) // exactly MaxDelay
	r.here.add(time.Millisecond)
	for range 2 {
		_, _, err := r.sub.Next(r.ctx)
		lag, ok := errors.AsType[*LagError](err)
		if !ok || !errors.Is(err, ErrLagged) || lag.Delay != 1001*time.Millisecond || lag.MaxDelay != time.Second {
			t.Fatalf("%v", err)
		}
		if want := "snail: the subscriber is 1.001s behind; at most 1s is allowed"; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if _, err := r.sub.Recv(r.ctx); !errors.Is(err, ErrLagged) {
		t.Errorf("Recv: %v", err)
	}
	eventually(t, "it is disconnected", func() bool { return len(r.pub.Peers()) == 0 })
	if r.sub.Peers() != nil {
		t.Error("it has connections")
	}
	s := r.sub.Stats()
	if s.Messages != 3 || s.Lags != 1 || s.Delay != 1001*time.Millisecond || s.LargestDelay != s.Delay || s.SmallestOffset != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReport: each message that is too old is reported and delivered.
func TestReport(t *testing.T) {
	t.Parallel()
	var lags []time.Duration
	r := newRig(t, Options{Policy: PolicyReport, OnLag: func(l Lag) { lags = append(lags, l.Delay) }})
	r.send("a", "b", "c")
	r.wants("a", 0)
	r.pass(2 * time.Second)
	r.wants("b", 2*time.Second)
	r.wants("c", 2*time.Second)
	r.send("d")
	r.wants("d", 0)
	if want := []time.Duration{2 * time.Second, 2 * time.Second}; !slices.Equal(lags, want) {
		t.Errorf("reported: %v", lags)
	}
}

// TestResubscribe: queued messages are dropped, and messages that are sent after the
// reconnection arrive.
func TestResubscribe(t *testing.T) {
	t.Parallel()
	var reported []Lag
	r := newRig(t, Options{Policy: PolicyResubscribe, Sequence: true, OnLag: func(l Lag) { reported = append(reported, l) }})
	r.send("a")
	r.wants("a", 0)
	for range 1000 {
		r.send("old")
	}
	r.pass(5 * time.Second)
	var sending sync.WaitGroup
	stop := make(chan struct{})
	sending.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = r.out.Send(r.ctx, []byte("fresh"))
			}
		}
	})
	// The first of the old messages is checked, and the others are dropped. The
	// sequence starts again with the connection.
	lag := r.wants("fresh", 0)
	close(stop)
	sending.Wait()
	if len(reported) != 1 || reported[0].Delay != 5*time.Second || lag.Missed != 0 {
		t.Errorf("reported: %v; then %v", reported, lag)
	}
	if s := r.sub.Stats(); s.Messages != 3 || s.Lags != 1 || s.Missed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestResubscribeInterrupted: a context or Close ends the pause of a resubscription.
// After a context, the next call continues.
func TestResubscribeInterrupted(t *testing.T) {
	t.Parallel()
	var cancel context.CancelFunc
	r := newRig(t, Options{Policy: PolicyResubscribe, Pause: time.Hour, OnLag: func(Lag) { cancel() }})
	r.send("old")
	r.pass(5 * time.Second)
	ctx, end := context.WithCancel(r.ctx)
	cancel = end
	if _, err := r.sub.Recv(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	eventually(t, "it is disconnected", func() bool { return len(r.pub.Peers()) == 0 })
	got := make(chan error, 1)
	go func() {
		m, err := r.sub.Recv(r.ctx)
		if err == nil && shown(m[:1]) != "fresh" {
			err = errors.New(shown(m))
		}
		got <- err
	}()
	r.connected()
	r.send("fresh")
	must(t, <-got)
	r.send("old")
	r.pass(5 * time.Second)
	cancel = func() { go r.sub.Close() }
	if _, err := r.sub.Recv(r.ctx); !errors.Is(err, sockets.ErrClosed) {
		t.Fatalf("%v", err)
	}
}

// TestSequence: missing messages are counted, and too many of them are a lag. A
// restarted publisher is not.
func TestSequence(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Sequence: true, MaxMissed: 2, MaxDelay: -1})
	skip := func(n uint64) { r.out.sent += n }
	r.here.add(-time.Hour) // delays are not checked
	r.send("a", "b")
	skip(2)
	r.send("c")
	for _, want := range []string{"a", "b", "c"} {
		lag := r.wants(want, 0)
		if (lag.Missed == 2) != (want == "c") {
			t.Errorf("%s: %d are missing", want, lag.Missed)
		}
	}
	r.out.sent = 0
	r.send("d", "e")
	r.wants("d", 0)
	r.wants("e", 0)
	skip(3)
	r.send("f")
	_, err := r.sub.Recv(r.ctx)
	lag, ok := errors.AsType[*LagError](err)
	if !ok || lag.Missed != 3 || err.Error() != "snail: 3 messages are missing; at most 2 are allowed" {
		t.Fatalf("%v", err)
	}
	if s := r.sub.Stats(); s.Missed != 5 || s.Restarts != 1 {
		t.Errorf("%+v", s)
	}
}

// TestSequenceOverflow: a subscriber detects that the publisher dropped messages while
// it did not read.
func TestSequenceOverflow(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub, err := sockets.NewPub(sockets.Options{SendHWM: 10, SendBuffer: 16 << 10})
	must(t, err)
	t.Cleanup(func() { pub.Close() })
	must(t, pub.Bind(ctx, anyPort))
	out := NewPublisher(pub, PublisherOptions{Sequence: true})
	sub, err := NewSubscriber(Options{
		Endpoints: []string{pub.LastEndpoint()}, Sequence: true, MaxDelay: -1,
		Socket: sockets.Options{RecvHWM: 1, RecvHWMBytes: 1, RecvBuffer: 16 << 10},
	})
	must(t, err)
	t.Cleanup(func() { must(t, sub.Close()) })
	must(t, pub.WaitSubscribers(ctx, "", 1))
	body := make([]byte, 16<<10)
	dropped := func() uint64 { return pub.Peers()[0].Drops }
	for dropped() == 0 {
		must(t, out.Send(ctx, body))
	}
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() { // until there is room again
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = out.Send(ctx, []byte("small"))
			}
		}
	})
	for err == nil {
		_, err = sub.Recv(ctx)
	}
	close(stop)
	sending.Wait()
	if lag, ok := errors.AsType[*LagError](err); !ok || lag.Missed == 0 {
		t.Fatalf("%v", err)
	}
}

// TestUnsynchronised: the delay is relative to the fastest message, even if the clocks
// differ by hours.
func TestUnsynchronised(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		r := newRig(t, Options{Clocks: ClocksUnsynchronised, MaxDelay: time.Second})
		r.here.add(apart)
		r.send("a")
		r.here.add(30 * time.Millisecond)
		r.wants("a", 0) // the first one is the base
		r.pass(time.Millisecond)
		r.send("b")
		r.wants("b", 0)
		r.there.add(30 * time.Millisecond) // this message is 30 ms faster
		r.send("c")
		r.wants("c", 0)
		r.send("d", "e")
		r.pass(900 * time.Millisecond)
		r.wants("d", 900*time.Millisecond-180*time.Microsecond) // minus the drift
		r.pass(200 * time.Millisecond)
		if _, err := r.sub.Recv(r.ctx); !errors.Is(err, ErrLagged) {
			t.Errorf("%v", err)
		}
		if s := r.sub.Stats(); s.SmallestOffset < apart-time.Second || s.SmallestOffset > apart+time.Second {
			t.Errorf("the clocks are %v apart; %v", apart, s.SmallestOffset)
		}
	}
}

// TestStampOfAnotherAge: after a stamp that is centuries ahead, delays are found, and not too
// large for a number that then is negative.
func TestStampOfAnotherAge(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Clocks: ClocksUnsynchronised, MaxDelay: time.Second})
	must(t, r.pub.Send(r.ctx, []byte("a"), []byte("999999999999999999")))
	if _, err := r.sub.Recv(r.ctx); err != nil {
		t.Fatal(err)
	}
	r.here.add(30 * time.Millisecond)
	r.send("b")
	if m, lag, err := r.sub.Next(r.ctx); !errors.Is(err, ErrLagged) {
		t.Errorf("%q with a delay of %v, %v", m, lag.Delay, err)
	}
}

// TestDrift: for a day, one clock is faster by MaxDrift. An additional delay is detected.
func TestDrift(t *testing.T) {
	t.Parallel()
	for _, drift := range []time.Duration{-150 * time.Microsecond, 150 * time.Microsecond} {
		o, err := Options{Endpoints: []string{"inproc://nobody"}, Clocks: ClocksUnsynchronised}.withDefaults()
		must(t, err)
		there, here := newClock(), newClock()
		g := gauge{opts: o, started: here.now()}
		var s Stats
		measure := func() Lag {
			lag, ok := g.measure(nil, AppendStamp(nil, there.now()), here.now(), &s)
			if !ok {
				t.Fatal("not a stamp")
			}
			s.Messages++
			return lag
		}
		for range 24 * 3600 {
			there.add(time.Second)
			here.add(time.Second + drift)
			if lag := measure(); g.behind(lag) || lag.Delay > 10*time.Millisecond {
				t.Fatalf("a delay of %v", lag.Delay)
			}
		}
		here.add(1500 * time.Millisecond)
		if lag := measure(); !g.behind(lag) || lag.Delay < 1400*time.Millisecond {
			t.Errorf("a delay of %v", lag.Delay)
		}
	}
}

// TestMalformed: messages without a stamp, or with Sequence without a number, are
// dropped and counted.
func TestMalformed(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Sequence: true})
	raw := func(frames ...string) {
		var all [][]byte
		for _, f := range frames {
			all = append(all, []byte(f))
		}
		must(t, r.pub.Send(r.ctx, all...))
	}
	stamp := string(AppendStamp(nil, r.here.now()))
	for _, bad := range []string{"", "x", "-1", "1.5", "1 ", "0x10", "1e3", "9999999999999999999", strings.Repeat("1", 1000)} {
		raw("x", "1", bad)
		raw("x", bad, stamp)
	}
	raw(stamp)
	raw("x", "7", stamp)
	r.wants("x", 0)
	if s := r.sub.Stats(); s.Messages != 1 || s.Malformed != 19 || s.Missed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPublisher: a message consists of the frames, the number and the stamp; one that is
// not sent uses no number; and messages of many goroutines are in order.
func TestPublisher(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	now := func() time.Time { return time.UnixMilli(1234567890123) }
	var sent []string
	var fails error
	p := NewPublisher(sender(func(frames [][]byte) error {
		if fails != nil {
			return fails
		}
		var m sockets.Message
		m = append(m, frames...)
		sent = append(sent, shown(m))
		return nil
	}), PublisherOptions{Sequence: true, Now: now})
	must(t, p.Send(ctx, []byte("topic"), nil))
	fails = errors.New("no")
	if err := p.Send(ctx); err != fails {
		t.Errorf("%v", err)
	}
	fails = nil
	must(t, p.Send(ctx))
	if want := []string{"topic||1|1234567890123", "2|1234567890123"}; !slices.Equal(sent, want) {
		t.Errorf("%q, want %q", sent, want)
	}
	sent = nil
	var many sync.WaitGroup
	for range 8 {
		many.Go(func() {
			for range 100 {
				if err := p.Send(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	many.Wait()
	if len(sent) != 800 || sent[0] != "3|1234567890123" || sent[799] != "802|1234567890123" {
		t.Errorf("%d messages, %v", len(sent), sent)
	}
	plain := NewPublisher(sender(func(frames [][]byte) error {
		if len(frames) != 1 || string(frames[0]) != "1234567890123" {
			t.Errorf("%q", frames)
		}
		return nil
	}), PublisherOptions{Now: now})
	must(t, plain.Send(ctx))
	if got := string(AppendStamp(nil, time.Time{})); got != "0" {
		t.Errorf("no time is stamped as %s", got)
	}
}

type sender func(frames [][]byte) error

func (f sender) Send(_ context.Context, frames ...[]byte) error { return f(frames) }

// TestTurns: many goroutines can receive, and a context ends the wait for the turn.
func TestTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	const receivers, each = 4, 50
	var receiving sync.WaitGroup
	for range receivers {
		receiving.Go(func() {
			for range each {
				if _, err := r.sub.Recv(r.ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range receivers * each {
		r.send("x")
	}
	receiving.Wait()
	waiting := make(chan error, 1)
	go func() {
		_, err := r.sub.Recv(r.ctx)
		waiting <- err
	}()
	eventually(t, "it waits", func() bool { return len(r.sub.turn) == 0 })
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := r.sub.Recv(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	must(t, r.sub.Close())
	if err := <-waiting; !errors.Is(err, sockets.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestOptions: all invalid options are reported at once.
func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := NewSubscriber(Options{
		Policy: 9, Clocks: 9, MaxDelay: -1, MaxDrift: -1, Pause: -1, Socket: sockets.Options{Conflate: true},
	})
	for _, field := range []string{"Endpoints", "Policy", "Clocks", "MaxDelay", "MaxDrift", "Pause", "Socket.Conflate"} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+": ") {
			t.Errorf("no error for %s: %v", field, err)
		}
	}
	two := []string{anyPort, anyPort}
	_, err = NewSubscriber(Options{Endpoints: two, Policy: PolicyReport, Sequence: true, Clocks: ClocksUnsynchronised})
	for _, field := range []string{"OnLag", "Sequence", "Clocks"} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+": ") {
			t.Errorf("no error for %s: %v", field, err)
		}
	}
	if _, err := NewSubscriber(Options{Endpoints: []string{"nonsense"}}); err == nil {
		t.Error("an endpoint is not checked")
	}
	if _, err := NewSubscriber(Options{Endpoints: two, Socket: sockets.Options{SendBuffer: -1}}); err == nil {
		t.Error("options of the socket are not checked")
	}
	for _, got := range []string{PolicyStop.String(), PolicyReport.String(), PolicyResubscribe.String(), Policy(9).String(), ClocksSynchronised.String(), ClocksUnsynchronised.String(), Clocks(9).String()} {
		if got == "" {
			t.Error("no name")
		}
	}
}

// TestAllocNext: adding and checking stamps does not allocate.
func TestAllocNext(t *testing.T) {
	r := newRig(t, Options{Sequence: true, Clocks: ClocksUnsynchronised})
	topic, body := []byte("topic"), make([]byte, 100)
	round := func() {
		for range 100 {
			must(t, r.out.Send(r.ctx, topic, body))
		}
		for range 100 {
			_, _, err := r.sub.Next(r.ctx)
			must(t, err)
		}
	}
	if n := testenv.Allocs(100, 300, round); n != 0 {
		t.Errorf("100 messages allocate %v times", n)
	}
}
