package sockets

import (
	"clustermap/internal/testenv"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// closes runs Close and returns a channel with its result.
func closes(s interface{ Close() error }) <-chan error {
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	return closed
}

// ends waits for the result of closes.
func ends(t *testing.T, what string, closed <-chan error) {
	t.Helper()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(DefaultLinger):
		t.Fatalf("%s: Close does not return", what)
	}
}

// TestDisconnectAndCloseBothWait: while Disconnect and Close both wait for the same
// messages, each of them learns that they were written.
func TestDisconnectAndCloseBothWait(t *testing.T) {
	t.Parallel()
	for _, linger := range []time.Duration{0, LingerForever} {
		for i := range 4 {
			endpoint, accept := listenRaw(t)
			dealer, err := NewDealer(Options{Linger: linger})
			must(t, err)
			must(t, dealer.Connect(endpoint))
			r := accept().Greet("ROUTER", nil)
			for range 200 {
				must(t, dealer.TrySend(make([]byte, 64<<10)))
			}
			must(t, dealer.Disconnect(endpoint))
			if i == 3 { // Disconnect waits before Close does
				meanwhile(t)
			}
			closed := testenv.Blocked(t, "sockets.(*socket).Close", dealer.Close)
			n, err := io.Copy(io.Discard, r.In)
			if n < 200*64<<10 || err != nil {
				t.Errorf("%d bytes came: %v", n, err)
			}
			r.Conn.Close()
			ends(t, "Disconnect and Close", closed)
		}
	}
}

// TestCloseGivesUpSilentPeers: by default Close gives up peers that are absent, that listen
// and say nothing, or that take nothing.
func TestCloseGivesUpSilentPeers(t *testing.T) {
	t.Parallel()
	for name, peer := range map[string]func(t *testing.T, d *Dealer){
		"absent": func(t *testing.T, d *Dealer) { must(t, d.Connect(freePort(t))) },
		"silent": func(t *testing.T, d *Dealer) {
			endpoint, accept := listenRaw(t)
			must(t, d.Connect(endpoint))
			accept()
		},
		"stuck": func(t *testing.T, d *Dealer) {
			endpoint, accept := listenRaw(t)
			must(t, d.Connect(endpoint))
			accept().Greet("ROUTER", nil)
			must(t, d.Send(testContext(t), plug))
		},
		"unbound": func(t *testing.T, d *Dealer) { must(t, d.Connect("inproc://"+t.Name())) },
		"left": func(t *testing.T, d *Dealer) { // also after Disconnect
			endpoint, _ := listenRaw(t)
			must(t, d.Connect(endpoint))
			must(t, d.Send(testContext(t), []byte("x")))
			must(t, d.Disconnect(endpoint))
			must(t, d.Connect(freePort(t)))
		},
		"accepting": func(t *testing.T, d *Dealer) { // and dropping, as a forwarder without a server
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					conn.Close()
				}
			}()
			must(t, d.Connect("tcp://"+l.Addr().String()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dealer, err := NewDealer(Options{})
			must(t, err)
			peer(t, dealer)
			must(t, dealer.Send(testContext(t), []byte("x")))
			start := time.Now()
			ends(t, name, closes(dealer))
			if took := time.Since(start); took < LingerPatience/2 {
				t.Errorf("Close gave up after %v", took)
			}
		})
	}
}

// TestCloseWaitsForPeersThatRead: by default Close waits for a peer that goes on
// taking its messages, be it slowly, and with another one beside it that takes nothing.
func TestCloseWaitsForPeersThatRead(t *testing.T) {
	t.Parallel()
	eventually(t, "the peer reads as it should", func() bool {
		endpoint, accept := listenRaw(t)
		push, err := NewPush(Options{SendBuffer: 16 << 10})
		must(t, err)
		must(t, push.Connect(endpoint))
		r := accept().Greet("PULL", nil)
		defer r.Conn.Close()
		const parts, size = 16, 256 << 10
		for range parts {
			must(t, push.Send(testContext(t), make([]byte, size)))
		}
		closed := closes(push)
		longest, last := time.Duration(0), time.Now()
		for left := parts - 1; err == nil && left > 0; left-- {
			time.Sleep(LingerPatience / 8) // the peer is slow
			_, err = io.CopyN(io.Discard, r.In, size)
			longest, last = max(longest, time.Since(last)), time.Now()
		}
		n := int64(0)
		if err == nil { // all the rest comes, and an end that is no reset
			n, err = io.Copy(io.Discard, r.In)
		}
		if n >= size && err == nil {
			r.Conn.Close()
			ends(t, "a slow peer", closed)
			return true
		}
		must(t, <-closed)
		if longest < LingerPatience/2 {
			t.Fatalf("%d bytes came in the end: %v", n, err)
		}
		return false // on a busy machine the peer was too slow
	})
}

// TestCloseContextEnds: a context ends the wait earlier.
func TestCloseContextEnds(t *testing.T) {
	t.Parallel()
	dealer, err := NewDealer(Options{Linger: LingerForever})
	must(t, err)
	must(t, dealer.Connect(freePort(t)))
	must(t, dealer.Send(testContext(t), []byte("x")))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	within(t, "CloseContext", func() {
		if err := dealer.CloseContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
