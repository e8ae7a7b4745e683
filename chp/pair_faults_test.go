package chp

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/internal/kvmsg"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
)

// wireFollower follows the active server of a pair as far as a test has it do so.
type wireFollower struct {
	*sockets.Dealer
	t      testing.TB
	gone   chan struct{} // closed when the connection has ended
	proofs proofs
	proves bool // it answers the server's challenge
}

// dialFollower connects to the active server, and sends nothing yet.
func dialFollower(t testing.TB, s pairServer, change ...func(*sockets.Options)) *wireFollower {
	t.Helper()
	f := &wireFollower{t: t, gone: make(chan struct{})}
	o := sockets.Options{
		Metadata:          map[string]string{"X-CHP": "clustermap/1", propertyPeer: peerVersion},
		ReconnectInterval: -1, Linger: sockets.LingerNone,
		Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventDisconnected {
				close(f.gone)
			}
		},
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	f.Dealer, err = sockets.NewDealer(o)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	must(t, f.Connect(s.Endpoints().Snapshot))
	f.proofs.init(nil)
	if f.proves = s.pair.peerKey.IsZero(); f.proves {
		s.trusts(&f.proofs)
	}
	return f
}

// trusts makes a server accept a follower as if it had found it at the other server's
// state endpoint.
func (p pairServer) trusts(other *proofs) {
	p.pair.proofs.mu.Lock()
	defer p.pair.proofs.mu.Unlock()
	p.pair.proofs.link = &stateLink{key: other.private.Public().(ed25519.PublicKey)}
}

// follow asks for the updates behind the last one that the server has.
func (f *wireFollower) follow(s pairServer) {
	f.t.Helper()
	r := s.asks()
	f.say(nameFollow, r.append(nil))
}

func (f *wireFollower) have(sequence int64) {
	f.t.Helper()
	f.say(nameHave, binary.BigEndian.AppendUint64(nil, uint64(sequence)))
}

func (f *wireFollower) say(name string, body []byte) {
	f.t.Helper()
	must(f.t, f.Send(testContext(f.t), []byte(name), body))
	if name != nameFollow || !f.proves {
		return
	}
	for {
		m, err := f.Recv(testContext(f.t))
		must(f.t, err)
		if string(m[0]) == nameChallenge {
			f.say(nameProof, f.proofs.prove(m[1]))
			return
		}
	}
}

// activePrimary returns the primary of a pair whose backup does not run. It is active.
func activePrimary(t testing.TB) (pairServer, *Client) {
	t.Helper()
	po, bo := pairOptions(t)
	s := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(testContext(t)))
	return s, c
}

// asks returns what a follower with the server's own map asks for.
func (p pairServer) asks() (r followRequest) {
	p.sequencer.Between(func(now *order.Moment) { r = followRequest{now.State.ID, now.Newest.ID, now.Newest.Last} })
	return r
}

// newest returns the sequence of a server's last update.
func (p pairServer) newest() int64 {
	return p.asks().last
}

// holds says whether updates wait for the follower, and if so makes them wait for the
// given number of further looks.
func (p pairServer) holds(looks int) (some bool) {
	p.sequencer.Between(func(now *order.Moment) {
		if some = now.Held > 0; some {
			p.pair.following.to.Idle = looksPerTimeout - looks
		}
	})
	return some
}

const forEver = 1 << 30

// inSyncWith makes a follower one that updates wait for.
func (p pairServer) inSyncWith(f *wireFollower) {
	f.t.Helper()
	f.follow(p)
	if m, err := f.Recv(testContext(f.t)); err != nil || string(m[0]) != nameTail {
		f.t.Fatalf("%q, %v", m, err)
	}
	f.have(p.newest())
	eventually(f.t, "updates wait for the follower", p.inSync2)
}

// TestPairParksNoneWhileActive: a request that was to wait for the server to become
// active is answered if it has become so a moment ago.
func TestPairParksNoneWhileActive(t *testing.T) {
	t.Parallel()
	s, _ := activePrimary(t)
	var peer *sockets.Peer
	for _, p := range s.members.Connected() {
		if p.SocketType() == "DEALER" {
			peer = p
		}
	}
	must(t, s.pair.park(t.Context(), request{peer: peer}))
	s.pair.voting.Lock()
	defer s.pair.voting.Unlock()
	if n := len(s.pair.parked); n > 0 {
		t.Errorf("%d requests wait for an active server to become active", n)
	}
}

// TestPairLeadAgain: a new reign of the server that is active already changes nothing
// for clients, and publishes nothing.
func TestPairLeadAgain(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	f := dialFollower(t, s)
	s.inSyncWith(f)
	done := make(chan error, 1)
	go func() {
		_, err := c.SetSync(ctx, "/held", []byte("1"))
		done <- err
	}()
	eventually(t, "the update is held", func() bool { return s.holds(forEver) })
	published, last := s.Sequence(), s.sequencer.Current().Last()
	s.pair.lead(ctx, 0)
	if p, l := s.Sequence(), s.sequencer.Current().Last(); p != published || l != last {
		t.Errorf("published %d, last %d; before the new reign %d, %d", p, l, published, last)
	}
	f.have(s.newest())
	must(t, <-done)
}

// TestPairGivesUpRestlessFollower: a follower that connects again and again and takes
// nothing holds up no updates without end.
func TestPairGivesUpRestlessFollower(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	_, err := c.SetSync(ctx, "/before", []byte("1"))
	must(t, err)
	f := dialFollower(t, s)
	s.inSyncWith(f)
	has := s.newest()
	asks := s.asks()
	asks.last = has
	set := make(chan error, 1)
	go func() {
		_, err := c.SetSync(ctx, "/held", []byte("1"))
		set <- err
	}()
	eventually(t, "the update is held", func() bool { return s.holds(looksPerTimeout) })
	for {
		must(t, f.Close())
		f = dialFollower(t, s)
		f.say(nameFollow, asks.append(nil))
		_, err := f.Recv(ctx)
		must(t, err)
		f.have(has)
		select {
		case err := <-set:
			must(t, err)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestPairFollowerFaults: a follower that violates the protocol is disconnected.
func TestPairFollowerFaults(t *testing.T) {
	t.Parallel()
	s, c := activePrimary(t)
	_, err := c.SetSync(testContext(t), "/a", []byte("1"))
	must(t, err)
	for name, fault := range map[string]func(*wireFollower){
		"has what it was not sent": func(f *wireFollower) { f.have(s.newest() + 1) },
		"asks twice":               func(f *wireFollower) { f.follow(s) },
	} {
		f := dialFollower(t, s)
		s.inSyncWith(f)
		fault(f)
		select {
		case <-f.gone:
		case <-time.After(hang):
			t.Errorf("a follower that %s is not disconnected", name)
		}
		must(t, f.Close())
		eventually(t, "it is not waited for", func() bool { return !s.inSync2() })
	}
}

// handoverInTest is a handover in progress, with the results of an update that was set
// before it and of one that was set while it ran.
type handoverInTest struct{ before, after, ended chan error }

// beginHandover makes f the follower of s, and begins a handover that cannot end: an
// update waits for f. A second update waits for the end of the handover.
func beginHandover(ctx context.Context, t testing.TB, s pairServer, c *Client, f *wireFollower) handoverInTest {
	t.Helper()
	s.inSyncWith(f)
	h := handoverInTest{make(chan error, 1), make(chan error, 1), make(chan error, 1)}
	testCtx := testContext(t)
	set := func(key string, done chan error) {
		_, err := c.SetSync(testCtx, key, []byte("1"))
		done <- err
	}
	go set("/before", h.before)
	eventually(t, "the update is held", func() bool { return s.holds(forEver) })
	go func() { h.ended <- s.pair.handover(ctx) }()
	eventually(t, "the handover has begun", func() bool {
		halted := false
		s.sequencer.Between(func(now *order.Moment) { halted = now.Halted })
		return halted
	})
	go set("/after", h.after)
	return h
}

// TestPairHandoverFails: if the follower leaves in the middle of a handover, it ends, and
// the updates that came meanwhile are taken.
func TestPairHandoverFails(t *testing.T) {
	t.Parallel()
	s, c := activePrimary(t)
	f := dialFollower(t, s)
	h := beginHandover(testContext(t), t, s, c, f)
	select {
	case err := <-h.ended:
		t.Fatalf("the handover does not wait for the follower: %v", err)
	case err := <-h.after:
		t.Fatalf("an update was taken meanwhile: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must(t, f.Close())
	if err := <-h.ended; !errors.Is(err, binarystar.ErrNoSuccessor) {
		t.Errorf("handover: %v", err)
	}
	s.holds(0)
	must(t, <-h.before)
	must(t, <-h.after)
	if n := c.Len(); n != 2 {
		t.Errorf("%d keys", n)
	}
}

// TestPairYieldTellsNobody: an update that a server may give up when it becomes passive is
// in no snapshot, before and after that.
func TestPairYieldTellsNobody(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	f := dialFollower(t, s)
	s.inSyncWith(f)
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _, _ = c.SetSync(short, "/lost", []byte("1")) }()
	eventually(t, "the update is held", func() bool { return s.holds(forEver) })
	p := newPlainClient(t, s.Server)
	must(t, p.dealer.Send(ctx, []byte("ICANHAZ?"), nil))
	m, err := p.dealer.Recv(ctx)
	if err != nil || string(m[0]) != kvmsg.KeyKTHXBAI {
		t.Errorf("a client is sent %q, %v; want the end of an empty snapshot", m, err)
	}
	s.pair.yield()
	if _, ok := s.Get("/lost"); ok {
		t.Error("the map has the update")
	}
}

// TestPairLeadsAgainWithHeldUpdates: a server that yields and leads again, because the other
// one has accepted nothing, publishes what it held. Nobody waits, and no client takes that for
// a loss.
func TestPairLeadsAgainWithHeldUpdates(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	f := dialFollower(t, s)
	s.inSyncWith(f)
	done := make(chan error, 1)
	go func() {
		_, err := c.SetSync(ctx, "/held", []byte("1"))
		done <- err
	}()
	eventually(t, "the update is held", func() bool { return s.holds(forEver) })
	must(t, f.Close())
	s.pair.yield()
	s.pair.lead(ctx, 0)
	if err := s.Flush(ctx); !errors.Is(err, ErrUncertain) { // of the term that has ended
		t.Errorf("the first Flush: %v", err)
	}
	must(t, s.Flush(ctx))
	if err := <-done; err != nil && !errors.Is(err, ErrUncertain) {
		t.Errorf("SetSync: %v", err)
	}
	if v, _ := s.Get("/held"); string(v) != "1" {
		t.Errorf("value %q", v)
	}
	must(t, c.WaitActive(ctx))
	before := c.Stats().Gaps
	_, err := c.SetSync(ctx, "/next", []byte("2"))
	must(t, err)
	if gaps := c.Stats().Gaps; gaps != before || before != 0 {
		t.Errorf("%d gaps", gaps)
	}
}

// TestPairYieldedUpdatesAreReported: updates that a server held when it yielded, and that the
// other one's map does not have, are reported when that replaces its own.
func TestPairYieldedUpdatesAreReported(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	_, bo := pairOptions(t)
	var lost []string
	bo.Pair.OnDiverged = func(d Divergence) {
		for e := range d.Entries {
			lost = append(lost, string(e.Key))
		}
	}
	s, err := NewServer(bo)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	s.sequencer.Lead(0, false, 0, -1)
	hold(s)
	must(t, s.Set(ctx, "/held", []byte("v")))
	s.pair.yield()
	b := newBase(s, state.Reign{ID: 9 << state.ReignBits, Last: 5})
	must(t, s.install(ctx, b))
	if !slices.Equal(lost, []string{"/held"}) || s.Len() != 0 {
		t.Errorf("reported %q, %d keys are left", lost, s.Len())
	}
}

// TestHeldExpiry: while the deletion of an expired key is held, the key has no time left, and
// an update of the key that is held keeps it from being deleted.
func TestHeldExpiry(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{ExpiryGrace: -1})
	must(t, s.Set(ctx, "/k", []byte("1"), WithTTL(time.Hour)))
	must(t, s.Set(ctx, "/again", []byte("1"), WithTTL(time.Hour)))
	release := hold(s)
	must(t, s.Set(ctx, "/again", []byte("2"), WithTTL(time.Hour)))
	q := &s.sequencer
	q.Expire(time.Now().Add(2 * time.Hour))
	if e, p := s.Lookup("/k"); p != PresenceFound || e.TTL != 1 {
		t.Errorf("a key whose deletion is held: %v, %v left", p, e.TTL)
	}
	release()
	if _, p := s.Lookup("/k"); p != PresenceAbsent {
		t.Errorf("the deleted key: %v", p)
	}
	if e, p := s.Lookup("/again"); p != PresenceFound || string(e.Value) != "2" || e.TTL < 59*time.Minute {
		t.Errorf("the key that was set again: %v %+v", p, e)
	}
}

// TestPairStatusBeforeListen: a server of a pair has a status from the beginning.
func TestPairStatusBeforeListen(t *testing.T) {
	t.Parallel()
	o, _ := pairOptions(t)
	s, err := NewServer(o)
	must(t, err)
	if st := s.Status(); st.Role != RolePrimary || st.State != ServerWaiting {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
}

// TestPairOptions: options that a pair does not support are refused.
func TestPairOptions(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*ServerOptions){
		"Model":        func(o *ServerOptions) { o.Model = 5 },
		"Preload":      func(o *ServerOptions) { o.Preload = func(func(Entry, error) bool) {} },
		"Pair.Acks":    func(o *ServerOptions) { o.Pair.Acks = 3 },
		"Pair.Timeout": func(o *ServerOptions) { o.Pair.Timeout = o.Pair.Interval },
	} {
		o, _ := pairOptions(t)
		change(&o)
		s, err := NewServer(o)
		if err == nil {
			must(t, s.Close())
		}
		var bad *OptionError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	o, _ := pairOptions(t)
	o.Model = 6
	s, err := NewServer(o)
	must(t, err)
	must(t, s.Close())
}

// newBase returns an empty map of another server.
func newBase(s *Server, newest state.Reign) *base {
	h := baseHead{mapID: [ledger.MapIDSize]byte{1}, reigns: []state.Reign{newest}}
	return &base{h, s.sequencer.NewCopy(1, h.mapID, h.reigns)}
}

// TestPairCopyThatIsNotKept: a map that the log does not take is not the server's, so
// that the log never has updates of one map on top of another one.
func TestPairCopyThatIsNotKept(t *testing.T) {
	t.Parallel()
	_, bo := pairOptions(t)
	bo.Log = openLog(t, t.TempDir())
	s, err := NewServer(bo)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	before := s.sequencer.Current().ID
	b := newBase(s, state.Reign{ID: 1, Last: 5})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.install(over, b); err == nil {
		t.Error("the copy was kept without the log")
	}
	if s.sequencer.Current().ID != before || s.pair.copied.Load() {
		t.Error("the server has a map that its log does not have")
	}
	must(t, s.install(t.Context(), b))
	if s.sequencer.Current().ID != b.mapID || s.Sequence() != 5 {
		t.Error("the copy is not installed")
	}
}
