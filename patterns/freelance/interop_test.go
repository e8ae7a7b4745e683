package freelance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/interop"
)

// guideServer is a server like the guide's.
type guideServer struct{ *interop.Process }

func startGuideServer(t testing.TB, args ...string) guideServer {
	t.Helper()
	interop.Require(t)
	return guideServer{interop.Python(t, "flserver.py", args...)}
}

type guideLook struct {
	Pings    int
	Requests [][][]byte
}

func (g guideServer) look() (l guideLook) {
	g.Call(interop.Op{"op": "look"}, &l)
	return l
}

// guideClient is a client like the guide's.
type guideClient struct {
	*interop.Process
	t testing.TB
}

func startGuideClient(t testing.TB, servers []string, args ...string) guideClient {
	t.Helper()
	interop.Require(t)
	args = append(args, "--interval", "0.1", "--ttl", "0.5")
	for _, s := range servers {
		args = append(args, "--server", s)
	}
	return guideClient{interop.Python(t, "flclient.py", args...), t}
}

// request returns a reply, or nil if there was none in time.
func (g guideClient) request(body ...[]byte) (reply [][]byte) {
	g.t.Helper()
	return g.requestWithin(hang, body...)
}

func (g guideClient) requestWithin(d time.Duration, body ...[]byte) (reply [][]byte) {
	g.t.Helper()
	var r struct{ Reply [][]byte }
	g.Call(interop.Op{"op": "request", "body": body, "timeout": d.Seconds()}, &r)
	return r.Reply
}

// pongs returns the number of PONGs from a server.
func (g guideClient) pongs(endpoint string) int {
	var all map[string]any
	g.Call(interop.Op{"op": "look"}, &all)
	n, _ := all[endpoint].(float64)
	return int(n)
}

// TestInteropServer: our client with servers like the guide's: requests, pings,
// failover when one is killed, stopped or slow, and its return.
func TestInteropServer(t *testing.T) {
	t.Parallel()
	first, second := startGuideServer(t, "--endpoint", freeEndpoint(t)), startGuideServer(t)
	c := startClient(t, ClientOptions{
		Servers: []string{first.Endpoint, second.Endpoint}, PingInterval: 50 * time.Millisecond, ServerTTL: hang,
		Timeout: 6 * time.Second,
	}).alive(t)
	if id := c.Servers()[0].Identity; id != first.Endpoint {
		t.Errorf("the first server's identity is %q", id)
	}
	for i := range 10 {
		r, err := c.Do(testContext(t), []byte("body"), fmt.Append(nil, i))
		must(t, err)
		wantBody(t, r.Body, "OK")
	}
	look := first.look()
	if len(look.Requests) != 10 {
		t.Fatalf("the server got %d requests", len(look.Requests))
	}
	for i, r := range look.Requests {
		wantBody(t, r, fmt.Sprint(i+1), "body", fmt.Sprint(i))
	}
	eventually(t, "pings are answered", func() bool { return c.Stats().Pongs >= 4 && first.look().Pings >= 2 })

	first.Stop()
	r, err := c.Do(context.Background(), []byte("x"))
	if err != nil || r.Server != second.Endpoint {
		t.Errorf("while the first one is stopped: %v from %s", err, r.Server)
	}
	first.Continue()
	eventually(t, "the first one is alive", func() bool { return c.Servers()[0].State == ServerAlive })

	first.Kill()
	r, err = c.Do(testContext(t), []byte("x"))
	if err != nil || r.Server != second.Endpoint {
		t.Errorf("while the first one is away: %v from %s", err, r.Server)
	}
	startGuideServer(t, "--endpoint", first.Endpoint)
	eventually(t, "the first one is used again", func() bool {
		r, err := c.Do(testContext(t), []byte("x"))
		return err == nil && r.Server == first.Endpoint
	})
	if st := c.Stats(); st.Malformed+st.Foreign > 0 {
		t.Errorf("%+v", st)
	}
}

// TestInteropSlowServer: a server like the guide's has one thread: it answers no
// ping while it executes a request, so it is silent when that takes longer than its
// share of the time, and the request goes to the next one.
func TestInteropSlowServer(t *testing.T) {
	t.Parallel()
	slow := startGuideServer(t)
	c, second := withSecond(t, slow.Endpoint, ClientOptions{PingInterval: 50 * time.Millisecond, ServerTTL: 300 * time.Millisecond})
	slow.Call(interop.Op{"op": "slow", "seconds": 3.0}, nil)
	r, err := c.Do(testContext(t), []byte("x"))
	if err != nil || r.Server != second.Endpoint() {
		t.Errorf("%v from %s", err, r.Server)
	}
	// Without another server it has all of the time.
	must(t, c.Disconnect(second.Endpoint()))
	r, err = c.Do(testContext(t), []byte("y"))
	if err != nil || r.Server != slow.Endpoint {
		t.Errorf("%v from %s", err, r.Server)
	}
	times := 0
	for _, r := range slow.look().Requests {
		if string(r[1]) == "y" {
			times++
		}
	}
	if times != 1 {
		t.Errorf("the slow server got the request %d times", times)
	}
}

// TestInteropIdentity: the client can use a server whose identity is not the endpoint
// to which it connects, such as a server of the guide that is bound to all addresses.
func TestInteropIdentity(t *testing.T) {
	t.Parallel()
	endpoint := freeEndpoint(t)
	startGuideServer(t, "--endpoint", "tcp://localhost:5555", "--bind", endpoint)
	c := startClient(t, ClientOptions{Servers: []string{endpoint}})
	r, err := c.Do(testContext(t), []byte("x"))
	if err != nil || r.Server != endpoint {
		t.Errorf("%v from %s", err, r.Server)
	}
	if id := c.Servers()[0].Identity; id != "tcp://localhost:5555" {
		t.Errorf("identity %q", id)
	}
}

// TestInteropClient: a client like the guide's with our servers: requests, pings
// while the handlers are busy, failover, and return.
func TestInteropClient(t *testing.T) {
	t.Parallel()
	var hold atomic.Bool
	release := make(chan bool)
	first := startServer(t, ServerOptions{Bind: freeEndpoint(t), Concurrency: 1, Handler: func(_ context.Context, r [][]byte) ([][]byte, error) {
		if hold.Load() {
			<-release
		}
		return append([][]byte{[]byte("first")}, r...), nil
	}})
	// The second server starts late, so that the client does not turn to it before.
	later := freeEndpoint(t)
	g := startGuideClient(t, []string{first.Endpoint(), later})
	wantBody(t, g.request([]byte("a")), "first", "a")
	binary := []byte{0, 0xff, 0}
	wantBody(t, g.request(binary, nil, []byte("c")), "first", string(binary), "", "c")
	eventually(t, "pings are answered", func() bool { return g.pongs(first.Endpoint()) > 0 })

	hold.Store(true)
	if r := g.requestWithin(200*time.Millisecond, []byte("b")); r != nil {
		t.Errorf("a reply of a busy server: %q", r)
	}
	before := g.pongs(first.Endpoint())
	eventually(t, "pings of a busy server are answered", func() bool { return g.pongs(first.Endpoint()) >= before+3 })
	hold.Store(false)
	close(release)
	wantBody(t, g.request([]byte("d")), "first", "d")

	startServer(t, ServerOptions{Bind: later, Handler: named("second")})
	eventually(t, "pings of both are answered", func() bool { return g.pongs(later) > 0 })
	must(t, first.Close())
	wantBody(t, g.request([]byte("e")), "second", "e")
}

// TestInteropDelimiter: the guide's Python client sends an empty frame before the body.
// The handler gets it, unless SkipDelimiter is set.
func TestInteropDelimiter(t *testing.T) {
	t.Parallel()
	verbatim := startServer(t, ServerOptions{})
	g := startGuideClient(t, []string{verbatim.Endpoint()}, "--delimiter")
	wantBody(t, g.request([]byte("a")), "", "a")
	skips := startServer(t, ServerOptions{SkipDelimiter: true})
	g = startGuideClient(t, []string{skips.Endpoint()}, "--delimiter")
	wantBody(t, g.request([]byte("a")), "a")
	wantBody(t, g.request(nil, []byte("a")), "", "a")
}

// TestInteropRefusal: a client like the guide's gets no refusal, which it could not
// read.
func TestInteropRefusal(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{Handler: func(context.Context, [][]byte) ([][]byte, error) {
		return nil, errors.New("no")
	}})
	g := startGuideClient(t, []string{s.Endpoint()})
	eventually(t, "a request has failed", func() bool { // the first ones may come before the connection
		if r := g.requestWithin(200*time.Millisecond, []byte("a")); r != nil {
			t.Fatalf("reply %q", r)
		}
		return s.Stats().Failed > 0
	})
	g.Call(interop.Op{"op": "look"}, nil) // it is still there
}
