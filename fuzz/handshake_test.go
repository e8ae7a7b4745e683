package fuzz

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"clustermap/zmtp"
)

// FuzzGreeting asserts that ParseGreeting does not panic, that more bytes never
// change its decision, and that a greeting it accepts survives encoding.
func FuzzGreeting(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), 2*zmtp.GreetingSize)]
		var failed error
		accepted := false
		for i := 0; i <= len(b); i++ {
			g, n, err := zmtp.ParseGreeting(b[:i])
			switch {
			case err != nil && (!errors.Is(err, zmtp.ErrVersion) || n != 0 || accepted):
				t.Fatalf("%d bytes: %d %v", i, n, err)
			case err == nil && failed != nil:
				t.Fatalf("%d bytes: the error %v went away", i, failed)
			case err == nil && n != 0 && (n != zmtp.GreetingSize || i < n):
				t.Fatalf("%d bytes: %d consumed", i, n)
			case err == nil && i >= zmtp.GreetingSize && n == 0:
				t.Fatalf("%d bytes are not enough", i)
			}
			failed, accepted = err, n != 0
			if accepted {
				again, _, err := zmtp.ParseGreeting(zmtp.AppendGreeting(nil, g))
				if again != g || err != nil {
					t.Fatalf("%+v, want %+v; %v", again, g, err)
				}
			}
		}
	})
}

// outcome is the result of a handshake.
type outcome struct {
	sent, rest string
	done       bool
	err        error
	peer       zmtp.Peer
}

// shake passes in to a new handshake in pieces of the given size.
func shake(t *testing.T, c zmtp.HandshakeConfig, in []byte, piece int) outcome {
	h := zmtp.NewHandshake(c)
	out := h.Start(nil)
	start, end := 0, 0
	for {
		n, next, done, err := h.Step(in[start:end], out)
		if n < 0 || n > end-start || !bytes.HasPrefix(next, out) || done && err != nil {
			t.Fatalf("n %d of %d, done %v, %v", n, end-start, done, err)
		}
		start += n
		out = next
		if done || err != nil || n == 0 && end == len(in) {
			return outcome{string(out), string(in[start:]), done, err, h.Peer()}
		}
		if n == 0 {
			end = min(end+piece, len(in))
		}
	}
}

// allocated returns the number of bytes allocated on the heap while f runs,
// including those of other goroutines.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzHandshake passes arbitrary bytes to a handshake of a DEALER, which accepts
// commands of any size, and to one of a ROUTER with a limit. It asserts that
// there is no panic, that the outcome does not depend on how the bytes are split,
// that Peer of an accepted peer is valid, and that the memory allocated is
// proportional to the number of bytes received. It allows one MiB more for other
// goroutines, so it finds allocations by an announced size, but not the waste of
// a few KiB.
func FuzzHandshake(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte, piece byte) {
		for _, c := range []zmtp.HandshakeConfig{
			{SocketType: zmtp.TypeDealer, Identity: []byte("me"), Limits: zmtp.Limits{MaxCommand: -1}},
			{SocketType: zmtp.TypeRouter, Limits: zmtp.Limits{MaxCommand: 200}},
		} {
			var whole outcome
			size := allocated(func() { whole = shake(t, c, in, len(in)) })
			if limit := uint64(1<<20 + 64*len(in)); size > limit {
				t.Fatalf("%d bytes allocated for %d received, limit %d", size, len(in), limit)
			}
			cut := shake(t, c, in, max(1, int(piece)))
			if cut.sent != whole.sent || cut.done != whole.done || (cut.err == nil) != (whole.err == nil) {
				t.Fatalf("cut: %+v, whole: %+v", cut, whole)
			}
			if whole.err != nil {
				if cut.err.Error() != whole.err.Error() {
					t.Fatalf("cut: %v, whole: %v", cut.err, whole.err)
				}
				var p *zmtp.ProtocolError
				if !errors.As(whole.err, &p) || p.Err == nil {
					t.Fatalf("error without a condition: %v", whole.err)
				}
				continue
			}
			if !whole.done {
				continue
			}
			p := whole.peer
			if whole.rest != cut.rest {
				t.Fatalf("rest %x, cut %x", whole.rest, cut.rest)
			}
			if p.Major < 3 || len(p.Identity) > 255 ||
				p.SocketType != zmtp.TypeUnknown && !zmtp.Compatible(c.SocketType, p.SocketType) {
				t.Fatalf("peer %+v", p)
			}
		}
	})
}
