package chp

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/partner"
	"clustermap/internal/kvmsg"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
)

// The messages between two servers of a pair, as they are on the wire.
const (
	nameFollow = "FOLLOW"
	nameTail   = "TAIL"
	nameTimes  = "TIMES"
	nameBase   = "BASE"
	nameBatch  = "BATCH"
	nameHave   = "HAVE"

	nameChallenge = "CHALLENGE"
	nameProof     = "PROOF"

	propertyPeer     = "X-CHP-Peer"
	propertyTimes    = "X-CHP-Peer-Times"
	propertyProofKey = "X-CHP-Proof-Key"
	peerVersion      = "1"
)

// followRequest is what FOLLOW says.
type followRequest struct {
	mapID [ledger.MapIDSize]byte
	reign uint64
	last  int64
}

func (r *followRequest) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, r.mapID[:]...), r.reign)
	return binary.BigEndian.AppendUint64(dst, uint64(r.last))
}

// wireFollower follows the active server of a pair as far as a test has it do so.
type wireFollower struct {
	*sockets.Dealer
	t      testing.TB
	gone   chan struct{} // closed when the connection has ended
	key    ed25519.PrivateKey
	proves bool // it answers the server's challenge
}

// dialFollower connects to the active server, which finds it at the other one's state endpoint
// too, and sends nothing yet.
func dialFollower(t testing.TB, s pairServer, change ...func(*sockets.Options)) *wireFollower {
	t.Helper()
	f := dialStranger(t, s, change...)
	if f.proves = f.key != nil; f.proves {
		s.finds(t, "127.0.0.1", map[string]string{propertyProofKey: hex.EncodeToString(f.key.Public().(ed25519.PublicKey))})
	}
	return f
}

// dialStranger connects to the active server, and sends nothing yet.
func dialStranger(t testing.TB, s pairServer, change ...func(*sockets.Options)) *wireFollower {
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
	if o.Security.CurveServerKey.IsZero() {
		_, f.key, _ = ed25519.GenerateKey(nil)
	}
	return f
}

// finds has a server find, at the other one's state endpoint, one that announces some
// properties.
func (p pairServer) finds(t testing.TB, host string, properties map[string]string) {
	t.Helper()
	other, err := sockets.NewPub(sockets.Options{Metadata: properties, Linger: sockets.LingerNone})
	must(t, err)
	defer other.Close()
	must(t, other.Bind(testContext(t), "tcp://"+host+":*"))
	p.looksAt(t, other.LastEndpoint())
}

// looksAt has a server take an endpoint for the other one's state endpoint.
func (p pairServer) looksAt(t testing.TB, endpoint string) {
	t.Helper()
	found := make(chan sockets.Event, 1)
	sub, err := sockets.NewSub(sockets.Options{Monitor: func(e sockets.Event) {
		if e.Kind == sockets.EventHandshakeSucceeded {
			found <- e
		}
	}})
	must(t, err)
	defer sub.Close()
	must(t, sub.Connect(endpoint))
	p.pair.Watch(<-found)
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
			f.prove(m[1])
			return
		}
	}
}

// prove answers a challenge.
func (f *wireFollower) prove(nonce []byte) {
	f.t.Helper()
	f.say(nameProof, ed25519.Sign(f.key, append([]byte("chp follow 1\x00"), nonce...)))
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
			p.pair.Journal().Follower().Idle = partner.LooksPerTimeout - looks
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
	published, last := s.Sequence(), s.live.Now().Last()
	s.pair.Lead(ctx, 1, 0)
	if p, l := s.Sequence(), s.live.Now().Last(); p != published || l != last {
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
	eventually(t, "the update is held", func() bool { return s.holds(partner.LooksPerTimeout) })
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
	go func() { h.ended <- s.pair.Handover(ctx, "") }()
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
	meanwhile(t)
	select {
	case err := <-h.ended:
		t.Fatalf("the handover does not wait for the follower: %v", err)
	case err := <-h.after:
		t.Fatalf("an update was taken meanwhile: %v", err)
	default:
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
	s.pair.Yield()
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
	s.pair.Yield()
	s.pair.Lead(ctx, 1, 0)
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
