package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Waits between resynchronisations double up to a minute, and begin anew after a
// time without any.
func TestResyncLimit(t *testing.T) {
	t.Parallel()
	var l resyncLimit
	now := time.Now()
	for i, want := range []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60} {
		delay := l.delay(now)
		if delay != want*time.Second {
			t.Errorf("the %dth waits %v, want %v", i+1, delay, want*time.Second)
		}
		now = now.Add(delay)
	}
	if delay := l.delay(now.Add(time.Hour)); delay != 0 {
		t.Errorf("after an hour it waits %v", delay)
	}
}

// A HUGZ of a server that is not ours counts only once one has been right.
func TestHeartbeatsOfOthers(t *testing.T) {
	t.Parallel()
	all := subtree.New(nil)
	s := newStream(&all, false)
	must(t, s.join([]int64{7}))
	wantAdmitted(t, s, "a@8", hugz(3472328296227680304), hugz(0), hugz(100), pub{"a", 8, "x"})
	if s.missing != nil {
		t.Errorf("heartbeats that never were right led to %v", s.missing)
	}
	wantAdmitted(t, s, "", hugz(8), hugz(8))
	if s.missing != nil {
		t.Errorf("right heartbeats led to %v", s.missing)
	}
	wantAdmitted(t, s, "", hugz(9))
	if s.missing == nil || *s.missing != (GapError{8, 9}) {
		t.Errorf("a heartbeat ahead led to %v", s.missing)
	}
}

// Attempts at servers that were not tried yet follow each other soon; those at
// servers that were do not.
func TestAttemptGaps(t *testing.T) {
	t.Parallel()
	f := &Follower{opts: Options{Servers: make([]Address, 2), SyncTimeout: 16 * time.Second}}
	for started, want := range map[int]time.Duration{1: 1, 2: 4, 3: 8, 4: 16, 5: 16, 1000: 16} {
		a := attempts{owner: f, started: started}
		if got := a.gap(); got != want*time.Second {
			t.Errorf("after %d attempts: %v, want %d s", started, got, want)
		}
	}
	f.opts.SyncTimeout = 1<<63 - 1
	if got := (&attempts{owner: f, started: 9}).gap(); got < time.Hour {
		t.Errorf("%v", got)
	}
}

// Room for another attempt is made by one that has heard nothing of its server, and
// is not the oldest.
func TestAttemptGivenUp(t *testing.T) {
	t.Parallel()
	f := &Follower{ctx: t.Context(), opts: Options{Servers: make([]Address, 1)}}
	a := attempts{owner: f}
	for i := range maxAttempts {
		s := f.newSession(0, nil)
		s.answered.Store(i == 1)
		a.running = append(a.running, s)
	}
	a.giveUp()
	for i, s := range a.running {
		cause := context.Cause(s.ctx)
		if want := i == 2; errors.Is(cause, ErrSilent) != want {
			t.Errorf("attempt %d: %v", i, cause)
		}
		s.answered.Store(true)
		s.fail(nil)
	}
	a.giveUp() // none
}

// After each round of the servers there is a pause: 25 to 50 ms at first, and never
// more than 250 ms. Rounds without a passive server are not its business.
func TestStandbyPauses(t *testing.T) {
	t.Parallel()
	var p standby
	p.ask(1, false)
	if wait, ok := p.pause(2); ok || wait != 0 {
		t.Errorf("%v, %v after a failure", wait, ok)
	}
	p.ask(1, true)
	if wait, ok := p.pause(2); !ok || wait < standbyFirst/2 || wait > standbyMost {
		t.Errorf("%v, %v after a round with a standby", wait, ok)
	}
	p.ask(1, true)
	if wait, ok := p.pause(2); !ok || wait != 0 {
		t.Errorf("%v, %v before the round is over", wait, ok)
	}
	p.ask(1, true)
	if _, ok := p.pause(2); !ok {
		t.Error("no pause after the second round")
	}
	p.ask(2, false)
	if _, ok := p.pause(2); ok {
		t.Error("a round without a standby is not left to others")
	}
	p.since = time.Now().Add(-time.Hour)
	for range 100 {
		p.ask(2, true)
		if wait, ok := p.pause(2); !ok || wait < standbyMost/2 || wait > standbyMost {
			t.Fatalf("%v, %v after an hour", wait, ok)
		}
	}
}

// A failure with an address and a port has the same cause as one with another.
func TestCauseWithoutAddress(t *testing.T) {
	t.Parallel()
	if got := cause(fmt.Errorf("to 127.0.0.1:4711: %w", syscall.ECONNREFUSED)); got != "connection refused" {
		t.Error(got)
	}
}

// A replica that is disconnected again and again soon after it has joined waits
// longer each time; one that follows for a while begins anew.
func TestRelapsesWaitLonger(t *testing.T) {
	t.Parallel()
	var r relapses
	if d := r.ended("a", time.Second, relapseBytes, nil); d != 0 {
		t.Errorf("the first time it waits %v", d)
	}
	for want := relapseFirst; want < 2*relapseMost; want *= 2 {
		if r.ended("a", 0, relapseBytes, nil) != 0 { // never ACTIVE: for backOff to say
			t.Error("a session that was never ACTIVE is a relapse")
		}
		d, most := r.ended("a", time.Second, relapseBytes, nil), min(want, relapseMost)
		if d < most/2 || d > most {
			t.Errorf("it waits %v, want %v to %v", d, most/2, most)
		}
	}
	if r.ended("a", relapseSoon, relapseBytes, nil) != 0 || r.ended("a", time.Second, relapseBytes, nil) != 0 {
		t.Error("after a long session the next one is not the first")
	}
	for range 100 {
		if d := r.ended("a", time.Second, relapseBytes, nil); d > relapseMost {
			t.Errorf("it waits %v", d)
		}
	}
}

// TestHandoversAreNoRelapses: a client that many updates reach between two handovers is not
// slow, so it goes to the other server at once each time.
func TestHandoversAreNoRelapses(t *testing.T) {
	t.Parallel()
	var r relapses
	for range 5 {
		for _, end := range []struct {
			active  time.Duration
			arrived int64
			err     error
		}{{time.Second, relapseBytes, ErrDisconnected}, {0, 0, errStandby}} {
			if d := r.ended("a", end.active, end.arrived, end.err); d != 0 {
				t.Fatalf("after %v it waits %v", end.err, d)
			}
		}
	}
}

// TestSlowClientOfAPairWaits: neither the passive server, at which a client asks as well, nor a
// handover now and then makes one that cannot keep up, or whose map is too large, come back at once.
func TestSlowClientOfAPairWaits(t *testing.T) {
	t.Parallel()
	slow := fmt.Errorf("%w: closed", ErrDisconnected)
	for _, end := range []struct {
		active  time.Duration
		arrived int64
		err     error
	}{{time.Second, relapseBytes, slow}, {time.Second, relapseBytes, ErrSilent}, {0, 0, ErrMapTooLarge}} {
		var r relapses
		wait := func(server string, active time.Duration, arrived int64, err error) time.Duration {
			d := r.ended(server, active, arrived, err)
			if d := r.ended("passive", 0, 0, errStandby); d != 0 {
				t.Errorf("%v: after STANDBY it waits %v", end.err, d)
			}
			return d
		}
		for range 20 {
			wait("active", end.active, end.arrived, end.err)
		}
		if d := wait("active", end.active, end.arrived, end.err); d < relapseMost/2 {
			t.Errorf("%v: it waits %v", end.err, d)
		}
		wait("active", time.Second, relapseBytes, slow)
		r.ended("active", time.Second, relapseBytes, slow)
		r.ended("active", 0, 0, errStandby) // it has handed over
		if d := wait("other", end.active, end.arrived, end.err); d < relapseMost/2 {
			t.Errorf("%v: after a handover it waits %v", end.err, d)
		}
	}
}

// Two servers that both answer nothing must not make the client spin.
func TestFollowerBacksOff(t *testing.T) {
	t.Parallel()
	f := &Follower{opts: Options{Servers: make([]Address, 3)}}
	for failures, most := range map[int]time.Duration{1: 0, 2: 0, 3: backOffFirst, 6: 2 * backOffFirst, 9: 4 * backOffFirst, 1000: backOffMost} {
		for range 100 {
			d := f.backOff(failures)
			if d > most || d < most/2 {
				t.Errorf("after %d failures: %v, want up to %v", failures, d, most)
			}
		}
	}
	gap, broken := &GapError{1, 3}, fmt.Errorf("%w: %w", ErrDisconnected, &sockets.PeerError{Remote: "x", Err: net.ErrClosed})
	for _, test := range []struct {
		active bool
		err    error
		want   int
	}{{true, gap, 1}, {false, gap, 1}, {true, broken, 1}, {false, broken, 2}, {true, ErrSilent, 2}, {false, ErrUnreachable, 2}} {
		if got := f.successor(1, test.active, test.err); got != test.want {
			t.Errorf("after %v, active %v: server %d, want %d", test.err, test.active, got, test.want)
		}
	}
	if got := f.successor(2, true, ErrSilent); got != 0 {
		t.Errorf("after the last server comes %d", got)
	}
}

func TestIntakeAllocatesNothing(t *testing.T) {
	wire, spans := wireBatch(t, pub{"/a/1", 1, "x"}, pub{"/b/1", 2, "y"}, hugz(2))
	some := subtree.New([]string{"/a/", "/b/1"})
	in := &intake{command: kvmsg.KindHUGZ, tag: hugzTag, refused: func(error) {}, wanted: &some}
	scratch := append(spans[:0:0], spans...)
	if n := testenv.Allocs(0, 1000, func() {
		if kept := in.sift(wire, append(scratch[:0], spans...)); len(kept) != 3 {
			t.Fatal(len(kept))
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// The count of remembered deletions is right after any updates of the keys.
func TestDeletionsAreCounted(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(6, 6))
	during := newInterim(store.New(store.Options{}), nil)
	for i := range 2000 {
		p := pub{fmt.Sprint("/k/", random.IntN(40)), int64(i + 1), ""}
		if random.IntN(2) == 0 {
			p.value = "v"
		}
		wire, spans := wireBatch(t, p)
		during.apply(wire, spans)
		want := 0
		for key := range during.deleted {
			want += deletionBytes + len(key)
		}
		if during.deletedBytes != want {
			t.Fatalf("%d bytes are counted, %d are there", during.deletedBytes, want)
		}
	}
}

// TestClientAsksSeldomForAMapThatIsTooLarge: it waits a second, and longer each time.
func TestClientAsksSeldomForAMapThatIsTooLarge(t *testing.T) {
	t.Parallel()
	var r relapses
	for want := time.Second; want < 2*relapseMost; want *= 2 {
		most := min(want, relapseMost)
		if d := r.ended("a", 0, 0, ErrMapTooLarge); d < most/2 || d > most {
			t.Errorf("it waits %v, want %v to %v", d, most/2, most)
		}
	}
}

func attemptsOf(s *status) (all []attempt) {
	s.Attempts(func(server string, p Phase, err error, _, _ bool) {
		all = append(all, attempt{server: server, phase: p, err: err})
	})
	return all
}

// TestOneConnectionProvesNoWrongKey: a server may have closed one connection in answer to HELLO for
// another reason, so the client does not call its own key wrong, unless the next one ends so too.
func TestOneConnectionProvesNoWrongKey(t *testing.T) {
	t.Parallel()
	s := &New(Options{Servers: []Address{{Name: "a"}}}).status
	key := fmt.Errorf("%w: %w", ErrUnreachable, sockets.ErrServerKey)
	for i, step := range []struct {
		err    error
		unsure bool
	}{{key, true}, {ErrDisconnected, false}, {key, true}, {key, false}, {key, false}, {errStandby, false}, {key, true}} {
		s.fail(0, step.err, false)
		s.Attempts(func(_ string, _ Phase, _ error, _, unsure bool) {
			if unsure != step.unsure {
				t.Errorf("step %d, %v: %v", i, step.err, unsure)
			}
		})
	}
}

// An attempt that another one overtook does not hide why an earlier one failed, and a
// server that was never tried is called so.
func TestAttemptsKeepTheCause(t *testing.T) {
	t.Parallel()
	s := &New(Options{Servers: []Address{{Name: "a"}, {Name: "b"}}}).status
	s.began(0)
	s.began(0)
	s.fail(0, ErrUnreachable, false)
	s.ended(0)
	s.fail(0, ErrOvertaken, false)
	want := func(what string, want ...attempt) {
		t.Helper()
		if got := attemptsOf(s); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("one attempt of two goes on", attempt{server: "a", phase: PhaseConnecting, err: ErrUnreachable}, attempt{server: "b"})
	s.ended(0)
	want("both have ended", attempt{server: "a", err: ErrUnreachable}, attempt{server: "b"})
	s.set(StateActive, "a")
	if !s.Attempts(nil) {
		t.Error("it is not active")
	}
	s.set(StateInitial, "a")
	want("a failure from before it was ACTIVE", attempt{server: "a"}, attempt{server: "b"})
	s.began(1)
	want("the other one", attempt{server: "a"}, attempt{server: "b", phase: PhaseConnecting})
}

// That the peer is not a CHP server stays the reason when another connection to it breaks,
// but not when it says something else.
func TestAttemptsSayMost(t *testing.T) {
	t.Parallel()
	s := &New(Options{Servers: []Address{{Name: "a"}}}).status
	foreign := fmt.Errorf("%w: %w", ErrUnreachable, zmtp.ErrVersion)
	for _, step := range []struct{ err, want error }{
		{ErrDisconnected, ErrDisconnected},
		{foreign, foreign},
		{ErrDisconnected, foreign},
		{fmt.Errorf("%w: refused", ErrUnreachable), foreign},
		{errStandby, errStandby},
		{foreign, foreign},
		{fmt.Errorf("%w: %w", ErrUnreachable, zmtp.ErrRefused), zmtp.ErrRefused},
		{ErrDisconnected, ErrDisconnected},
	} {
		s.fail(0, step.err, false)
		if f := attemptsOf(s)[0]; !errors.Is(f.err, step.want) {
			t.Errorf("after %v: %v, want %v", step.err, f.err, step.want)
		}
	}
}
