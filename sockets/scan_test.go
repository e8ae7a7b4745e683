package sockets

import (
	"bytes"
	"fmt"
	"testing"

	"clustermap/internal/hooks"
	"clustermap/zmtp"
)

// scanOf returns a function for hooks.Scan that knows messages of one frame "s" and a length, then
// as many bytes.
func scanOf(seen func(size int)) func([]byte) (int, uint64) {
	return func(b []byte) (int, uint64) {
		if len(b) < 3 || b[0] != 0 || b[2] != 's' || len(b) < 2+int(b[1]) {
			return 0, 0
		}
		seen(2 + int(b[1]))
		return 2 + int(b[1]), uint64(b[1])
	}
}

// TestScan: messages that Scan knows have its tag, others are decoded as usual, in the
// order in which they came, however the bytes are cut.
func TestScan(t *testing.T) {
	t.Parallel()
	var stream []byte
	var want []string
	for i := range 40 {
		known, other := fmt.Sprintf("s%d", i), fmt.Sprintf("o%d", i)
		stream = append(append(stream, wire(known)...), wire(other, "more")...)
		stream = append(append(stream, zmtp.AppendPing(nil, 0, nil)...), wire(bigOf('s', 300))...)
		want = append(want, known, other, bigOf('s', 300))
	}
	for _, cut := range []int{1, 7, 64, len(stream)} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			found := 0
			pull := open(t, NewPull, Options{})
			hooks.Scan(pull, scanOf(func(int) { found++ }))
			must(t, pull.Bind(ctx, freePort(t)))
			r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
			go func() {
				for at := 0; at < len(stream); at += cut {
					r.Send(stream[at:min(len(stream), at+cut)])
				}
			}()
			var b Batch
			defer b.Release()
			for n := 0; n < len(want); {
				must(t, pull.RecvBatch(ctx, &b))
				for i, body := range bodies(&b) {
					if body != want[n] {
						t.Fatalf("message %d is %.20q, want %.20q", n, body, want[n])
					}
					tag := uint64(0)
					if n%3 == 0 {
						tag = uint64(len(body))
					}
					if b.engine().Spans()[i].Tag != tag {
						t.Fatalf("message %d, %.20q, has tag %d, want %d", n, body, b.engine().Spans()[i].Tag, tag)
					}
					n++
				}
			}
			if found != 40 {
				t.Errorf("Scan found %d messages, want 40", found)
			}
		})
	}
}

// TestScanLimit: a message above MaxMessageSize does not come through Scan.
func TestScanLimit(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	pull := open(t, NewPull, Options{MaxMessageSize: 100, Monitor: seen.Tell})
	hooks.Scan(pull, scanOf(func(int) {}))
	must(t, pull.Bind(t.Context(), freePort(t)))
	r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
	r.Send(append(wire(bigOf('s', 90)), wire(bigOf('s', 120))...))
	r.Ended()
	m, err := pull.Recv(testContext(t))
	must(t, err)
	if len(m[0]) != 90 {
		t.Errorf("received %d bytes", len(m[0]))
	}
	if e := seen.Await(t, EventDisconnected); e.Err == nil {
		t.Error("no reason")
	}
}

// TestScanCommandInside: a command between two frames of a message, which Scan does not
// see there, and a message that Scan knows right behind.
func TestScanCommandInside(t *testing.T) {
	t.Parallel()
	pull := open(t, NewPull, Options{})
	hooks.Scan(pull, scanOf(func(int) {}))
	must(t, pull.Bind(t.Context(), freePort(t)))
	r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
	two := wire("o", "more")
	stream := bytes.Join([][]byte{two[:3], zmtp.AppendPing(nil, 0, nil), two[3:], wire("s1")}, nil)
	before := pull.Reads()
	r.Send(stream[:5])
	eventually(t, "the beginning is read", func() bool { return pull.Reads() > before })
	r.Send(stream[5:])
	for _, want := range []string{"o", "s1"} {
		m, err := pull.Recv(testContext(t))
		must(t, err)
		if string(m[0]) != want {
			t.Fatalf("received %q, want %q", m[0], want)
		}
	}
}

// TestScanSubscriptionInside: the same with a subscription in place of the PING, at a
// socket that receives both, and a message before that Scan knows.
func TestScanSubscriptionInside(t *testing.T) {
	t.Parallel()
	known := wire("s", "t") // as Scan knows it
	xpub := open(t, NewXPub, Options{})
	hooks.Scan(xpub, func(b []byte) (int, uint64) {
		if !bytes.HasPrefix(b, known) {
			return 0, 0
		}
		return len(known), 1
	})
	must(t, xpub.Bind(t.Context(), freePort(t)))
	r := dialRaw(t, xpub.LastEndpoint()).Greet("SUB", nil)
	subscribe := zmtp.AppendSubscribe(nil, []byte("topic"))
	r.Send(bytes.Join([][]byte{known, known[:3], subscribe, known[3:], wire("x"), wire("o", "p")}, nil))
	for _, want := range []string{"s|t", "\x01topic", "s|t", "x", "o|p"} {
		m, err := xpub.Recv(testContext(t))
		must(t, err)
		if got := string(bytes.Join(m, []byte("|"))); got != want {
			t.Fatalf("received %q, want %q", got, want)
		}
	}
}

// bigOf returns a text of n bytes that begins with b.
func bigOf(b byte, n int) string { return string(bytes.Repeat([]byte{b}, n)) }
