package chp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// When the connection to the collector breaks, the session ends: updates in flight
// are uncertain, and the client connects again.
func TestCollectorBreaks(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, calling := range []string{"SetSync", "Flush"} {
		s := newScripted(t, asOurs)
		c := activeClient(t, s, ClientOptions{})
		result := make(chan error, 1)
		go func() {
			var err error
			if calling == "SetSync" {
				_, err = c.SetSync(ctx, "k", []byte("v"))
			} else if err = c.Set(ctx, "k", []byte("v")); err == nil {
				err = c.Flush(ctx)
			}
			result <- err
		}()
		s.kvset() // it came, and is lost
		must(t, s.sub.Unbind(s.sub.LastEndpoint()))
		must(t, s.sub.Close())
		if err := <-result; !errors.Is(err, ErrUncertain) {
			t.Errorf("%s: %v, want ErrUncertain", calling, err)
		}
		eventually(t, "the client is no longer ACTIVE", func() bool { return c.State() != StateActive })
	}
}

// A collector that is no SUB socket, as those of the guide's first models, is
// reported to the caller and to OnFailure. The client goes on reading.
func TestCollectorOfWrongType(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	collector := s.sub.LastEndpoint()
	must(t, s.sub.Close())
	pull, err := sockets.NewPull(sockets.Options{})
	must(t, err)
	t.Cleanup(func() { pull.Close() })
	must(t, pull.Bind(ctx, collector))
	failures := make(chan error, 100)
	c := activeClient(t, s, ClientOptions{OnFailure: func(_ string, err error) { failures <- err }})
	result := setSync(ctx, c, "k", "v")
	var unfit *CollectorError
	if got := <-result; !errors.As(got.err, &unfit) || unfit.Server != s.name() {
		t.Errorf("SetSync: %v, want a *CollectorError", got.err)
	}
	if err := <-failures; !errors.As(err, &unfit) {
		t.Errorf("OnFailure was told of %v", err)
	}
	s.answer(11, pub{"k", 11, "x"})
	wantContents(t, c, 11, map[string]string{"k": "x"})
}

// An update whose error was reported is never sent afterwards, whether it had been
// handed to the old connection or not.
func TestReportedIsNeverSent(t *testing.T) {
	t.Parallel()
	for _, collector := range []string{"gone", "stuck"} {
		t.Run(collector, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := newScripted(t, asPlain)
			c := activeClient(t, s, ClientOptions{SendQueue: 1 << 16})
			if collector == "gone" {
				must(t, s.sub.Close())
			}
			calls, cancel := context.WithCancel(ctx)
			defer cancel()
			const n = 8
			var results []<-chan synced
			for i := range n { // together more than the connection takes without a reader
				results = append(results, testenv.Blocked(t, "chp.(*Client).SetSync", func() synced {
					seq, err := c.SetSync(calls, fmt.Sprint("old", i), make([]byte, 1<<20))
					return synced{seq, err}
				}))
			}
			if collector == "stuck" {
				eventually(t, "an update was sent", func() bool {
					return slices.ContainsFunc(s.sub.Peers(), func(p sockets.PeerStats) bool { return p.MessagesIn > 0 })
				})
			}
			s.close()
			eventually(t, "the client has noticed", func() bool { return c.State() != StateActive })
			cancel()
			for _, result := range results {
				if got := <-result; !errors.Is(got.err, ErrUncertain) && !errors.Is(got.err, context.Canceled) {
					t.Errorf("SetSync: %v", got)
				}
			}
			next, err := scriptedAt(t, nil, s.host, s.port)
			must(t, err)
			stop := next.beat(50)
			defer stop()
			go func() {
				id, _ := next.ask()
				next.kthxbai(id, 50, "")
			}()
			marker := setSync(ctx, c, "marker", "v")
			m := next.kvset()
			if m.key != "marker" {
				t.Fatalf("%s was reported and sent afterwards", m.key)
			}
			next.publish(m.key, 51, m.uuid, "", m.value)
			if got := <-marker; got.err != nil {
				t.Error(got.err)
			}
		})
	}
}

// After any fault of the server's ports the client writes again once they work.
func TestWritesAgainAfterAnyFault(t *testing.T) {
	t.Parallel()
	serverCurve, clientCurve := curve()
	denying := serverCurve
	denying.Authenticate = sockets.AllowKeys() // no key
	for name, test := range map[string]struct {
		client       sockets.Security
		right, wrong ServerOptions
		shift        int // of the wrong server's ports
	}{
		"one port too high": {shift: 1},
		"not allowed":       {clientCurve, ServerOptions{Security: serverCurve}, ServerOptions{Security: denying}, 0},
		"without CURVE":     {clientCurve, ServerOptions{Security: serverCurve}, ServerOptions{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			port, host := 0, loopback.Own()
			serve := func(o ServerOptions, port int) (s *Server, stop func()) {
				o.Host, o.Port, o.Logger = host, port, quiet()
				s, err := NewServer(o)
				must(t, err)
				must(t, s.Listen(ctx))
				served := make(chan error, 1)
				go func() { served <- s.Serve(context.Background()) }()
				<-s.Ready()
				return s, func() { must(t, s.Close()); must(t, <-served) }
			}
			s, stop := serve(test.right, 0)
			port = portOf(s.Endpoints().Snapshot)
			var failures atomic.Int32
			c, err := NewClient(ClientOptions{
				Servers: []string{s.Endpoints().Snapshot}, Security: test.client,
				OnFailure: func(string, error) { failures.Add(1) },
			})
			must(t, err)
			defer c.Close()
			_, err = c.SetSync(ctx, "k", []byte("1"))
			must(t, err)
			stop()
			_, stop = serve(test.wrong, port+test.shift)
			failures.Store(0)
			eventually(t, "the client has failed a few times", func() bool { return failures.Load() >= 3 })
			stop()
			_, stop = serve(test.right, port)
			defer stop()
			_, err = c.SetSync(ctx, "k", []byte("2"))
			must(t, err)
			if v, _ := c.Get("k"); string(v) != "2" {
				t.Errorf("k = %q", v)
			}
		})
	}
}

// One answer of HTTP at the collector's port is no reason never to write
// again.
func TestWritesAgainAfterHTTP(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	proxies, address := newProxies(t, server.Endpoints())
	c, err := NewClient(ClientOptions{Servers: []string{address}})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	_, err = c.SetSync(ctx, "k", []byte("1"))
	must(t, err)
	var once atomic.Bool
	proxies[2].instead(func(nc net.Conn) bool {
		if !once.CompareAndSwap(false, true) {
			return false
		}
		nc.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n................................................"))
		nc.Close()
		return true
	})
	proxies[2].each((*link).reset)
	eventually(t, "somebody else has answered", once.Load)
	var unfit *CollectorError
	_, err = c.SetSync(ctx, "k", []byte("2"))
	for err != nil {
		if !errors.Is(err, ErrUncertain) && !errors.As(err, &unfit) {
			t.Fatal(err)
		}
		_, err = c.SetSync(ctx, "k", []byte("2"))
	}
}

// A peer that sends a guess of a client's next UUID, made from the published ones,
// does not have the client's SetSync return.
func TestUUIDsCannotBeGuessed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	proxies, address := newProxies(t, server.Endpoints())
	victim, err := NewClient(ClientOptions{Servers: []string{address}, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, err)
	t.Cleanup(func() { must(t, victim.Close()) })
	attacker := newPlainClient(t, server)
	_, err = victim.SetSync(ctx, "k", []byte("first"))
	must(t, err)
	seen := attacker.next().uuid

	proxies[2].each((*link).hold)
	done := setSync(ctx, victim, "k", "second")
	for n := range uint64(20) {
		next := append([]byte(nil), seen...)
		binary.BigEndian.PutUint64(next[8:], binary.BigEndian.Uint64(seen[8:])+1+n)
		attacker.send([]byte("k"), make([]byte, 8), next, nil, []byte("forged"))
		attacker.send([]byte("k"), make([]byte, 8), next, nil, []byte("second"))
	}
	attacker.send([]byte("k"), make([]byte, 8), seen, nil, []byte("last"))
	eventually(t, "the victim has seen all that", func() bool { v, _ := victim.Get("k"); return string(v) == "last" })
	meanwhile(t)
	if len(done) != 0 {
		t.Fatalf("SetSync returned %v though its update was held back", <-done)
	}
	proxies[2].each((*link).release)
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
	if v, _ := victim.Get("k"); string(v) != "second" {
		t.Errorf("k = %q", v)
	}
}
