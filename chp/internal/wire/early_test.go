package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/internal/buf"
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
func earlyRecord(n int, key, properties, value string) ([]byte, []buf.Span) {
	wire := kvmsg.AppendRecord(nil, []byte(key), 0, earlyID(n), []byte(properties), []byte(value))
	spans, _ := kvmsg.SpansOf(wire, nil)
	return wire, spans
}

// earlyTest is an Early with a clock of its own.
type earlyTest struct {
	Early
	now time.Duration
}

const earlyTimeout = time.Second

func newEarlyTest() *earlyTest {
	return &earlyTest{Early: Early{Timeout: earlyTimeout}, now: time.Hour}
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
		e.Published(wire, spans, e.now)
	}
}

// want takes the remaining updates, and compares their keys.
func (e *earlyTest) want(t *testing.T, numbers ...int) {
	t.Helper()
	wire, spans := e.Drain(e.now)
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
	if !e.Empty() {
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

// Nothing stays for ever. If the active server has not published an update while
// it was heard for two time-outs, it never will; while it is silent, updates wait for the
// server that takes over, but not without end; the memory has a bound.
func TestEarlyUpdatesAge(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	e, a := newEarlyTest(), new(sockets.Peer)
	e.comes(a, 1)
	e.now += 10 * earlyTimeout
	e.Expire(e.now, e.now-9*earlyTimeout)
	e.comes(a, 2)
	e.want(t, 1, 2)

	e.comes(a, 3)
	e.now += 3 * earlyTimeout
	e.comes(a, 4)
	e.Expire(e.now, e.now)
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
	e.Expire(e.now, 0)
	if !e.seen.remove(updateID(earlyID(1))) {
		t.Error("an update is forgotten too early")
	}
	for range 3 {
		e.now += seenAges * earlyTimeout
		e.Expire(e.now, 0)
	}
	if !e.Empty() {
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

// A client's earlier update cannot come back over a later one of its own that
// the active server has published, in any order of copies and records.
func TestEarlyUpdatesKeepTheOrder(t *testing.T) {
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
	number := e.Count()
	e.comes(b, 3)
	e.comes(a, 4)
	var seen Seen
	for _, n := range []int{3, 5} {
		wire, spans := earlyRecord(n, "/n", "", "v")
		seen.Published(wire, spans)
	}
	e.Copied(number, &seen, e.now)
	e.comes(b, 5, 6)
	e.want(t, 4, 6)
}

// A time to live counts from an update's arrival. The other properties
// stay as they are.
func TestEarlyUpdatesKeepTheirProperties(t *testing.T) {
	t.Parallel()
	e, a := newEarlyTest(), new(sockets.Peer)
	for n, properties := range []string{"a=1\nttl=10\nb=2\n", "ttl=1\n", "ttl=0\n", strings.Repeat("name=value\n", 1000)} {
		wire, spans := earlyRecord(n, "/k", properties, "v")
		e.keep(a, wire, spans, e.now)
		clear(wire)
	}
	e.now += 3 * time.Second
	wire, spans := e.Drain(e.now)
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

// An update without a UUID, or one of the wrong size, is not kept.
func TestEarlyUpdatesNeedAUUID(t *testing.T) {
	t.Parallel()
	e, a := newEarlyTest(), new(sockets.Peer)
	wire := kvmsg.AppendRecord(nil, []byte("/k"), 0, nil, nil, []byte("v"))
	spans, _ := kvmsg.SpansOf(wire, nil)
	e.keep(a, wire, spans, e.now)
	e.Published(wire, spans, e.now)
	if got := e.fresh(wire, spans); len(got) != 1 {
		t.Error("not taken by an active server")
	}
	e.want(t)
}
