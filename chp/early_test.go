package chp

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/partner"
	"clustermap/chp/internal/wire"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// earlyID returns a UUID.
func earlyID(n int) []byte {
	id := []byte("0123456789abcdef")
	binary.BigEndian.PutUint32(id[12:], uint32(n))
	return id
}

// twoCopies is a client of another make, with a connection to each server's collector,
// so that a test says when which copy comes.
type twoCopies struct {
	t    *testing.T
	pubs [2]*sockets.Pub
}

func newTwoCopies(t *testing.T, servers ...pairServer) *twoCopies {
	t.Helper()
	c := &twoCopies{t: t}
	for i, s := range servers {
		var err error
		c.pubs[i], err = sockets.NewPub(sockets.Options{FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, Linger: sockets.LingerNone})
		must(t, err)
		t.Cleanup(func() { c.pubs[i].Close() })
		must(t, c.pubs[i].Connect(s.Endpoints().Collector))
	}
	return c
}

// send sends an update to the servers given, by number.
func (c *twoCopies) send(n int, key, properties, value string, servers ...int) {
	c.t.Helper()
	for _, i := range servers {
		must(c.t, c.pubs[i].Send(testContext(c.t), []byte(key), make([]byte, 8), earlyID(n), []byte(properties), []byte(value)))
	}
}

// early returns how many updates a server holds, and how many it remembers.
func (p pairServer) early() (held, remembered int) {
	return p.sequencer.Early()
}

// holdsEarly says whether a server holds this number of early updates.
func (p pairServer) holdsEarly(n int) bool {
	held, _ := p.early()
	return held == n
}

// Updates that clients of other makes sent to both servers are applied once when the
// passive one takes over: those that the active one had published are not applied again,
// also if their copies come late, and the others are, with the rest of their time to live.
func TestPairAppliesEarlyUpdates(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	po.Pair.Timeout, bo.Pair.Timeout = time.Hour, time.Hour // nothing ages meanwhile
	bo.ExpiryGrace = -1
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the primary is active", primary.active)
	eventually(t, "the backup follows", primary.inSync2)
	c := newTwoCopies(t, primary, backup)
	base := primary.Sequence()

	c.send(1, "/first", "", "1", 0, 1)
	c.send(2, "/brief", "ttl=1\n", "2", 0, 1)
	c.send(3, "/late", "", "3", 0)
	eventually(t, "both have the updates", func() bool { return backup.Sequence() >= base+3 && backup.holdsEarly(0) })
	eventually(t, "the copy that has not come is remembered", func() bool {
		_, remembered := backup.early()
		return remembered == 1
	})

	// The passive server expires no keys.
	eventually(t, "the active server expires it", func() bool { return primary.Sequence() == base+4 && primary.Len() == 2 })
	eventually(t, "both are equal", func() bool { return backup.Sequence() == base+4 && backup.Len() == 2 })
	if n := backup.Stats().Expired; n > 0 {
		t.Errorf("the passive server has expired %d keys", n)
	}

	c.send(4, "/early", "ttl=3600\nunit=lux\n", "4", 1)
	c.send(5, "/gone", "ttl=1\n", "5", 1)
	eventually(t, "the passive server holds them", func() bool { return backup.holdsEarly(2) })
	reader := newPlainClient(t, backup.Server)
	primary.stop()
	eventually(t, "the backup is active", backup.active)
	got := reader.next()
	if got.key != "/early" || !strings.HasPrefix(got.properties, "ttl=35") || !strings.HasSuffix(got.properties, "\nunit=lux\n") || got.value != "4" || string(got.uuid) != string(earlyID(4)) {
		t.Errorf("published: %+v", got)
	}
	if got := reader.next(); got.key != "/gone" || got.value != "5" {
		t.Errorf("published: %+v", got)
	}
	c.send(3, "/late", "", "3", 1) // its second copy
	c.send(6, "/last", "", "6", 1)
	eventually(t, "the last update is there", func() bool { _, ok := backup.Get("/last"); return ok })
	eventually(t, "the time to live ends", func() bool { _, ok := backup.Get("/gone"); return !ok })
	if n := backup.Stats().Updates; n != 3 {
		t.Errorf("the backup has taken %d updates, want 4, 5 and 6", n)
	}
	if !backup.holdsEarly(0) {
		t.Error("updates are left")
	}
}

// A server that could not hand over takes the updates that came meanwhile.
func TestPairResumes(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the primary is active", primary.active)
	c := newTwoCopies(t, primary, backup)
	halt := func(on bool) { primary.sequencer.Halt(on) }
	halt(true) // as handover does
	c.send(1, "/k", "", "v", 0)
	eventually(t, "the update has come", func() bool {
		all := primary.collector.Peers()
		return len(all) == 1 && all[0].MessagesIn == 1 && all[0].PendingMessages == 0
	})
	if _, ok := primary.Get("/k"); ok || !primary.holdsEarly(0) {
		t.Error("the update does not wait")
	}
	halt(false)
	eventually(t, "the update is taken", func() bool { v, _ := primary.Get("/k"); return string(v) == "v" })
	eventually(t, "the other server has it", func() bool { _, ok := backup.Get("/k"); return ok })
}

// A passive server sends no HUGZ: a client of another make, which knows nothing else,
// turns to the other server.
func TestPairPassiveIsSilent(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	po.Pair.Timeout, bo.Pair.Timeout = time.Hour, time.Hour // no server is taken for dead
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the primary is active", primary.active)
	eventually(t, "the backup follows", primary.inSync2)
	at, passive := newPlainClient(t, primary.Server), newPlainClient(t, backup.Server)
	left := make(chan struct{}, 1)
	sub, err := sockets.NewSub(sockets.Options{Monitor: func(e sockets.Event) {
		if e.Kind == sockets.EventDisconnected {
			wake.Signal(left)
		}
	}})
	must(t, err)
	defer sub.Close()
	must(t, sub.Connect(primary.Endpoints().Publisher))
	must(t, sub.Subscribe("HUGZ"))
	_, err = sub.Recv(testContext(t))
	must(t, err)
	for range 3 {
		at.any()
	}
	ctx, cancel := context.WithTimeout(passive.ctx, 50*time.Millisecond)
	defer cancel()
	if m, err := passive.sub.Recv(ctx); err == nil {
		t.Fatalf("the passive server publishes %q", m)
	}
	must(t, primary.pair.Handover(testContext(t), ""))
	passive.any() // it is active
	select {
	case <-left: // the server that is passive now has let it go
	case <-testContext(t).Done():
		t.Error("still connected")
	}
}

// A request that comes at the very moment at which the server becomes active is answered.
func TestPairAnswersRequestsOfTheMoment(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	primary, _ := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the primary is active", primary.active)
	c := newPlainClient(t, primary.Server)
	c.snapshot("") // it is connected
	for _, peer := range primary.members.Connected() {
		if peer.SocketType() == "DEALER" && !partner.Announces(peer) {
			must(t, primary.pair.Park(c.ctx, peer, wire.Want{})) // as if the server were passive
		}
	}
	m, err := c.dealer.Recv(c.ctx)
	must(t, err)
	if len(m) != 5 || string(m[0]) != "KTHXBAI" {
		t.Errorf("the answer is %q", m)
	}
}
