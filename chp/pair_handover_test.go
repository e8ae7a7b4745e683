package chp

import (
	"errors"
	"net"
	"testing"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/internal/testenv"
	"clustermap/patterns/binarystar"
)

// TestPairHandoverDuringCopy: while the follower is still being sent the map, a handover
// does not keep the server from taking updates.
func TestPairHandoverDuringCopy(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	f := dialFollower(t, s)
	r := followRequest{}
	f.say(nameFollow, r.append(nil))
	_, err = f.Recv(ctx)
	must(t, err)
	handoverInVain(t, s)
}

// TestPairHandoverToIdle: a handover to a follower that takes nothing, and for which
// updates no longer wait, does not keep the server from taking them either.
func TestPairHandoverToIdle(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	s.inSyncWith(dialFollower(t, s))
	_, err := c.SetSync(ctx, "/a", []byte("1")) // it waits for the time-out
	must(t, err)
	handoverInVain(t, s)
}

// handoverInVain hands over to a follower that does not take all it is sent.
func handoverInVain(t testing.TB, s pairServer) {
	t.Helper()
	ctx, ended := testContext(t), make(chan error, 1)
	go func() { ended <- s.pair.Handover(ctx, "") }()
	var err error
	q := &s.sequencer
	for err == nil {
		q.Between(func(now *order.Moment) {
			if now.Halted {
				t.Error("updates wait for a follower that is behind")
			}
		})
		select {
		case err = <-ended:
		case <-time.After(5 * time.Millisecond):
		}
	}
	if !errors.Is(err, binarystar.ErrNoSuccessor) {
		t.Errorf("handover: %v", err)
	}
}

// TestPairHandoverWaitsForNews: a server whose follower's last state is old, as after a
// restart of the follower, waits for the next one before it hands over.
func TestPairHandoverWaitsForNews(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	states := newProxy(t, bo.Pair.State)
	po.Pair.PeerState = states.endpoint()
	s, err := NewServer(po)
	must(t, err)
	s.pair.News = hang // however long the state takes
	primary, backup := servePair(t, s), startPairServer(t, bo)
	eventually(t, "the backup follows", primary.inSync)
	states.instead(func(c net.Conn) bool { return c.Close() == nil })
	states.each((*link).reset)
	eventually(t, "the backup's state is old", func() bool { return !s.pair.Node().Peer().Alive })
	ended := make(chan error, 1)
	go func() { ended <- s.pair.Handover(testContext(t), "") }()
	states.instead(nil)
	must(t, <-ended)
	eventually(t, "the backup is active", backup.active)
}

// TestPairHandoverGoesOn: a server that is ended during a handover that fails hands over
// after it.
func TestPairHandoverGoesOn(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	po.Pair.Timeout, bo.Pair.Timeout = time.Hour, time.Hour // no server is taken for dead
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the primary is active", primary.active)
	eventually(t, "the backup follows", primary.inSync)
	q := &primary.sequencer
	halt := func(on bool) { q.Halt(on) }
	halt(true) // as a handover does
	ended := testenv.Blocked(t, "partner.(*Pair).Shutdown", func() error { primary.pair.Shutdown(); return nil })
	halt(false)
	must(t, <-ended)
	eventually(t, "the backup is active", backup.active)
}

// TestPairTakesBack: the server that has handed over can take over again at once: it has
// a copy of the map, also before it follows.
func TestPairTakesBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	peer := po.Pair.Peer
	po.Pair.Peer = po.Pair.PeerState // where no server sends anything
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	po.Pair.Peer = peer
	c := pairClient(t, po, bo)
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	must(t, primary.pair.Handover(ctx, ""))
	eventually(t, "the backup is active", backup.active)
	backup.crash()
	eventually(t, "the primary is active again", primary.active)
	if v, _ := primary.Get("/a"); string(v) != "1" {
		t.Errorf("%q", v)
	}
}
