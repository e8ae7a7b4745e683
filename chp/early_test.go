package chp

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// Numbers in the names of tests are those of the known flaws of the guide's pair of
// Clone servers: see docs/PAIR.md.

// earlyID returns a UUID.
func earlyID(n int) []byte {
	id := []byte("0123456789abcdef")
	binary.BigEndian.PutUint32(id[12:], uint32(n))
	return id
}

// earlyRecord returns one update and its span.
func earlyRecord(n int, key, properties, value string) ([]byte, []sockets.Span) {
	wire := kvmsg.AppendRecord(nil, []byte(key), 0, earlyID(n), []byte(properties), []byte(value))
	spans, _ := kvmsg.SpansOf(wire, nil)
	return wire, spans
}

// earlyTest is an early with a clock of its own.
type earlyTest struct {
	early
	now time.Duration
}

const earlyTimeout = time.Second

func newEarlyTest() *earlyTest {
	return &earlyTest{early: early{timeout: earlyTimeout}, now: time.Hour}
}

// comes has updates come over a connection, published has the active server publish
// them.
func (e *earlyTest) comes(from *sockets.Peer, numbers ...int) {
	for _, n := range numbers {
		wire, spans := earlyRecord(n, fmt.Sprintf("/%d", n), "", "v")
		e.keep(from, wire, spans, e.now)
	}
}

func (e *earlyTest) active(numbers ...int) {
	for _, n := range numbers {
		wire, spans := earlyRecord(n, fmt.Sprintf("/%d", n), "", "v")
		e.published(wire, spans, e.now)
	}
}

// want takes the remaining updates, and compares their keys.
func (e *earlyTest) want(t *testing.T, numbers ...int) {
	t.Helper()
	wire, spans := e.drain(e.now)
	var got []string
	for _, s := range spans {
		got = append(got, string(kvmsg.Record(wire[s.Start:s.End]).Key()))
	}
	var want []string
	for _, n := range numbers {
		want = append(want, fmt.Sprintf("/%d", n))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v are left, want %v", got, want)
	}
	if e.order.Len() > 0 || len(e.byID) > 0 || len(e.froms) > 0 || e.bytes != 0 {
		t.Errorf("still held: %d, %d, %d, %d bytes", e.order.Len(), len(e.byID), len(e.froms), e.bytes)
	}
}

// The active server's record removes a copy, whichever comes first; the remaining copies
// stay in the order of their arrival.
func TestEarly(t *testing.T) {
	t.Parallel()
	e, a, b := newEarlyTest(), new(sockets.Peer), new(sockets.Peer)
	e.comes(a, 1)
	e.active(1, 3) // the copy of 3 comes later
	e.comes(b, 2)
	e.comes(a, 3, 4, 4)
	e.comes(b, 5)
	e.comes(a, 6)
	e.want(t, 2, 4, 5, 6)
	if !e.empty() {
		t.Error("not empty")
	}
	e.active(7)
	wire, spans := earlyRecord(7, "/7", "", "v")
	if got := e.fresh(wire, spans); len(got) > 0 {
		t.Error("a late copy is new")
	}
	wire, spans = earlyRecord(8, "/8", "", "v")
	if got := e.fresh(wire, spans); len(got) != 1 {
		t.Error("a new update is not")
	}
}

// Flaw 4: nothing stays for ever. If the active server has not published an update while
// it was heard for two time-outs, it never will; while it is silent, updates wait for the
// server that takes over, but not without end; the memory has a bound.
func TestPairFlaw4EarlyUpdatesAge(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	e, a := newEarlyTest(), new(sockets.Peer)
	e.comes(a, 1)
	e.now += 10 * earlyTimeout
	e.expire(e.now, e.now-9*earlyTimeout)
	e.comes(a, 2)
	e.want(t, 1, 2)

	e.comes(a, 3)
	e.now += 3 * earlyTimeout
	e.comes(a, 4)
	e.expire(e.now, e.now)
	e.want(t, 4)

	e.comes(a, 5)
	e.now += maxEarlyAge + 1
	e.want(t)

	// Updates of a client that is connected to the active server only.
	for n := range 3 * maxSeen {
		e.active(n)
	}
	if n := len(e.seen.newer) + len(e.seen.older); n > 2*maxSeen || n < maxSeen {
		t.Errorf("%d updates are remembered", n)
	}
	e.active(1)
	e.now += (seenAges - 1) * earlyTimeout
	e.expire(e.now, 0)
	if !e.seen.remove(updateID(earlyID(1))) {
		t.Error("an update is forgotten too early")
	}
	for range 3 {
		e.now += seenAges * earlyTimeout
		e.expire(e.now, 0)
	}
	if !e.empty() {
		t.Error("updates are remembered for ever")
	}

	// And of one that is connected to the passive server only.
	large := strings.Repeat("x", earlyBytes/4)
	for n := range 10 {
		wire, spans := earlyRecord(n, fmt.Sprintf("/%d", n), "", large)
		e.keep(a, wire, spans, e.now)
		if e.bytes > earlyBytes {
			t.Fatalf("%d bytes", e.bytes)
		}
	}
	e.want(t, 7, 8, 9)
	for n := range 2 * earlyBytes / earlyOverhead {
		e.comes(a, n)
	}
	if n := e.order.Len(); n > earlyBytes/earlyOverhead {
		t.Errorf("%d updates are held", n)
	}
}

// Flaw 5: a client's earlier update cannot come back over a later one of its own that
// the active server has published, in any order of copies and records.
func TestPairFlaw5EarlyUpdatesKeepTheOrder(t *testing.T) {
	t.Parallel()
	e, a, b := newEarlyTest(), new(sockets.Peer), new(sockets.Peer)
	e.comes(a, 1, 2) // 1 did not reach the active server
	e.comes(b, 3)
	e.comes(a, 4, 5)
	e.active(4)
	e.want(t, 3, 5)

	e.active(7)
	e.comes(a, 6)
	e.comes(b, 8)
	e.comes(a, 7, 9)
	e.want(t, 8, 9)
}

// A copied map stands for all that came before it.
func TestEarlyCopied(t *testing.T) {
	t.Parallel()
	e, a, b := newEarlyTest(), new(sockets.Peer), new(sockets.Peer)
	e.comes(a, 1, 2)
	number := e.count
	e.comes(b, 3)
	e.comes(a, 4)
	var seen seenUpdates
	for _, n := range []int{3, 5} {
		wire, spans := earlyRecord(n, "/n", "", "v")
		seen.published(wire, spans)
	}
	e.copied(number, &seen, e.now)
	e.comes(b, 5, 6)
	e.want(t, 4, 6)
}

// Flaw 2: a time to live counts from an update's arrival. Flaw 10: the other properties
// stay as they are.
func TestPairFlaws2And10EarlyProperties(t *testing.T) {
	t.Parallel()
	e, a := newEarlyTest(), new(sockets.Peer)
	for n, properties := range []string{"a=1\nttl=10\nb=2\n", "ttl=1\n", "ttl=0\n", strings.Repeat("name=value\n", 1000)} {
		wire, spans := earlyRecord(n, "/k", properties, "v")
		e.keep(a, wire, spans, e.now)
		clear(wire)
	}
	e.now += 3 * time.Second
	wire, spans := e.drain(e.now)
	for n, want := range []string{"a=1\nttl=7\nb=2\n", "ttl=0.001\n", "ttl=0\n", strings.Repeat("name=value\n", 1000)} {
		r := kvmsg.Record(wire[spans[n].Start:spans[n].End])
		if got := string(r.Props()); got != want || string(r.Value()) != "v" || string(r.UUID()) != string(earlyID(n)) {
			t.Errorf("%.50q %q %q, want %.50q", got, r.Value(), r.UUID(), want)
		}
	}
	again, ok := kvmsg.SpansOf(wire, nil)
	if !ok || fmt.Sprint(again) != fmt.Sprint(spans) {
		t.Errorf("spans are %v, want %v", spans, again)
	}
}

// Flaw 11: an update without a UUID, or one of the wrong size, is not kept.
func TestPairFlaw11EarlyUUIDs(t *testing.T) {
	t.Parallel()
	e, a := newEarlyTest(), new(sockets.Peer)
	wire := kvmsg.AppendRecord(nil, []byte("/k"), 0, nil, nil, []byte("v"))
	spans, _ := kvmsg.SpansOf(wire, nil)
	e.keep(a, wire, spans, e.now)
	e.published(wire, spans, e.now)
	if got := e.fresh(wire, spans); len(got) != 1 {
		t.Error("not taken by an active server")
	}
	e.want(t)
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

// early returns how many updates a server holds.
func (p pairServer) early() int {
	q := &p.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.early.order.Len()
}

// knows says whether a server remembers an update.
func (p pairServer) knows(n int) bool {
	q := &p.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	_, newer := q.early.seen.newer[updateID(earlyID(n))]
	_, older := q.early.seen.older[updateID(earlyID(n))]
	return newer || older
}

// Updates that clients of other makes sent to both servers are applied once when the
// passive one takes over: those that the active one had published are not applied again,
// also if their copies come late, and the others are, with the rest of their time to live
// (flaws 1 and 2).
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
	eventually(t, "both have the updates", func() bool { return backup.Sequence() >= base+3 && backup.early() == 0 })
	eventually(t, "the copy that has not come is remembered", func() bool { return backup.knows(3) })

	// Flaw 1: the passive server expires no keys.
	eventually(t, "the active server expires it", func() bool { return primary.Sequence() == base+4 && primary.Len() == 2 })
	eventually(t, "both are equal", func() bool { return backup.Sequence() == base+4 && backup.Len() == 2 })
	if n := backup.Stats().Expired; n > 0 {
		t.Errorf("the passive server has expired %d keys", n)
	}

	c.send(4, "/early", "ttl=3600\nunit=lux\n", "4", 1)
	c.send(5, "/gone", "ttl=1\n", "5", 1)
	eventually(t, "the passive server holds them", func() bool { return backup.early() == 2 })
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
	if backup.early() > 0 {
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
	halt := func(on bool) {
		q := &primary.sequencer
		q.mu.Lock()
		q.halt(haltHandover, on)
		q.mu.Unlock()
	}
	halt(true) // as handover does
	c.send(1, "/k", "", "v", 0)
	time.Sleep(20 * time.Millisecond)
	if _, ok := primary.Get("/k"); ok || primary.early() > 0 {
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
			signal(left)
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
	must(t, primary.pair.handover(testContext(t)))
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
	p := primary.pair
	p.voting.Lock()
	p.active.Store(false)
	asked := p.asked.Load()
	must(t, c.dealer.Send(c.ctx, []byte("ICANHAZ?"), nil))
	eventually(t, "the request has come", func() bool { return p.asked.Load() != asked })
	p.active.Store(true)
	p.voting.Unlock()
	m, err := c.dealer.Recv(c.ctx)
	must(t, err)
	if len(m) != 5 || string(m[0]) != "KTHXBAI" {
		t.Errorf("the answer is %q", m)
	}
}
