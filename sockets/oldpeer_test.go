package sockets

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/hooks"
	"clustermap/internal/sockettest"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// TestOldHostile: faults of old peers' traffic cost their own connection alone,
// and the good messages before them are there.
func TestOldHostile(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, MaxMessageSize: 1 << 20})
	works := honest(t, router, "honest")
	works()
	seen.Await(t, EventHandshakeSucceeded)
	for _, c := range []struct {
		name    string
		version sockettest.Version
		says    string
		want    error
	}{
		{"length 0", sockettest.ZMTP10, "\x00", zmtp.ErrMalformed},
		{"long length 0", sockettest.ZMTP10, "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrMalformed},
		{"2^62", sockettest.ZMTP10, "\xff\x40\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^63", sockettest.ZMTP10, "\xff\x80\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^64-1", sockettest.ZMTP10Revised, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", zmtp.ErrTooLarge},
		{"above the limit", sockettest.ZMTP10, "\xff\x00\x00\x00\x00\x00\x10\x00\x02\x00", zmtp.ErrTooLarge},
		{"frames above the limit", sockettest.ZMTP10, strings.Repeat("\xfe\x01"+strings.Repeat("x", 253), 1<<20/254), zmtp.ErrTooLarge},
		{"too many frames", sockettest.ZMTP10, strings.Repeat("\x01\x01", zmtp.DefaultMaxFrames+1), zmtp.ErrTooLarge},
		{"command", sockettest.ZMTP20, "\x04\x07\x04PING\x00\x00", zmtp.ErrMalformed},
		{"2^62", sockettest.ZMTP20, "\x02\x40\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^63", sockettest.ZMTP20, "\x02\x80\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"frames above the limit", sockettest.ZMTP20, strings.Repeat("\x01\xff"+strings.Repeat("x", 255), 1<<20/255), zmtp.ErrTooLarge},
		{"end in a frame", sockettest.ZMTP10, "\x05\x00a", io.EOF},
		{"end in a header", sockettest.ZMTP20, "\x02\x00", io.EOF},
	} {
		r := dialRaw(t, router.LastEndpoint())
		r.Send([]byte(strings.Join(c.version.Hello(zmtp.TypeDealer, "hostile"), "")))
		// libzmq's order is kept to by others; here all comes at once.
		r.Send([]byte(c.version.Message("good")))
		if _, err := r.Conn.Write([]byte(c.says)); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
		if errors.Is(c.want, io.EOF) {
			must(t, r.Conn.(*net.TCPConn).CloseWrite())
		}
		e := seen.Await(t, EventDisconnected)
		var peer *PeerError
		if !errors.Is(e.Err, c.want) || !errors.As(e.Err, &peer) {
			t.Errorf("%s, %s: %+v, want %v", c.version, c.name, e, c.want)
		}
		wants(t, router, "hostile good")
		r.Ended()
		works()
	}
}

// TestOldHostileHandshake: an old peer that stops in its handshake does not hold up
// others and is ended in time, like any other.
func TestOldHostileHandshake(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, MaxHandshakes: 4})
	works := honest(t, router, "honest")
	works()
	var all []*raw
	for _, says := range []string{"\x05", "\x05\x00pe", "\xff\x00\x00\x00\x00\x00\x00\x00\x05\x00", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x00\x05",
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00\x04pee", ""} {
		r := dialRaw(t, router.LastEndpoint())
		r.Send([]byte(says))
		all = append(all, r)
	}
	for _, r := range all[:len(all)-4] {
		if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrHandshakeTimeout) {
			t.Errorf("%+v", e)
		}
		r.Ended()
	}
	works()
}

// TestOldHostileMemory: as TestHostileMemory, with the framings of old peers,
// whose bytes pass through a codec and its buffer.
func TestOldHostileMemory(t *testing.T) {
	if testenv.RaceDetector {
		t.Skip("the race detector's own memory is measured too")
	}
	const connections = 100
	announce := map[sockettest.Version]string{
		sockettest.ZMTP10: "\xff\x00\x00\x00\x00\x0b\xeb\xc2\x00\x00",
		sockettest.ZMTP20: "\x02\x00\x00\x00\x00\x0b\xeb\xc2\x00",
	}
	for _, v := range []sockettest.Version{sockettest.ZMTP10, sockettest.ZMTP20} {
		for _, c := range []struct {
			name string
			says string
			each int64 // bytes a connection may cost
		}{
			{"idle after traffic", strings.Repeat(v.Message(strings.Repeat("x", 1000)), 500), 40 << 10},
			{"idle after tiny messages", strings.Repeat(v.Message(""), 100_000), 40 << 10},
			{"5000 of 200 million bytes", announce[v] + strings.Repeat("x", 5000), 40<<10 + 8*5000},
			{"300 thousand of 200 million bytes", announce[v] + strings.Repeat("x", 300_000), 40<<10 + 8*300_000},
		} {
			t.Run(string(v)+" "+c.name, func(t *testing.T) {
				router, err := NewRouter(Options{Linger: LingerNone})
				must(t, err)
				hooks.Prepare(router, func(b *hooks.Batch) { b.SetSpans(nil) })
				defer router.Close()
				must(t, router.Bind(testContext(t), anyPort))
				hello := []byte(strings.Join(v.Hello(zmtp.TypeDealer, ""), ""))
				before := used()
				var peers []*raw
				for range connections {
					r := dialRaw(t, router.LastEndpoint())
					r.Send(hello, []byte(c.says))
					peers = append(peers, r)
				}
				eventually(t, "all bytes are received", func() bool { return unreceived(t, peers) == 0 })
				cost := (used() - before) / connections
				for n := 0; cost > c.each && n < 50; n++ {
					cost = (used() - before) / connections // the last readers are about to sleep
				}
				t.Logf("%d bytes a connection", cost)
				if cost > c.each {
					t.Errorf("%d bytes a connection, the bound is %d", cost, c.each)
				}
				for _, r := range peers {
					r.Conn.Close()
				}
			})
		}
	}
}

// TestOldHostileTrickle: byte by byte, with announcements of large frames in
// between, for as long as an honest peer takes to do its work.
func TestOldHostileTrickle(t *testing.T) {
	t.Parallel()
	router := bind(t, NewRouter, Options{})
	works := honest(t, router, "honest")
	works()
	for _, v := range []sockettest.Version{sockettest.ZMTP10, sockettest.ZMTP10Revised, sockettest.ZMTP20} {
		r := dialRaw(t, router.LastEndpoint())
		r.Slowly(strings.Join(v.Hello(zmtp.TypeDealer, "trickle"), ""))
		flood := bytes.Repeat([]byte(v.Message("", "x")), 500)
		for i := range flood {
			r.Send(flood[i : i+1])
			if i%500 == 0 {
				works()
			}
		}
		works()
	}
}
