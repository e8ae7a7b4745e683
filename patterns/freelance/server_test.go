package freelance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// blocking is a handler that announces each request and waits until it may reply.
type blocking struct{ begun, release chan bool }

func newBlocking() *blocking { return &blocking{make(chan bool, 1000), make(chan bool)} }

func (b *blocking) handle(ctx context.Context, r [][]byte) ([][]byte, error) {
	b.begun <- true
	select {
	case <-b.release:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// occupied starts a server with one handler, which executes a request of a client that
// understands refusals until release is called.
func occupied(t *testing.T, o ServerOptions) (s *Server, c *rawClient, release func()) {
	t.Helper()
	b := newBlocking()
	o.Concurrency, o.Handler = 1, b.handle
	s = startServer(t, o)
	c = startRawClient(t, s.Endpoint(), sockets.Options{Metadata: map[string]string{property: "1"}})
	c.send("1", "x")
	<-b.begun
	return s, c, func() { close(b.release) }
}

// TestBusy: a server without room refuses a request, which then goes to the next one.
// When all refuse, the request fails with ErrBusy at once.
func TestBusy(t *testing.T) {
	t.Parallel()
	b := newBlocking()
	busy := startServer(t, ServerOptions{Concurrency: 1, MaxWaiting: 1, Handler: b.handle})
	c := startClient(t, ClientOptions{Servers: []string{busy.Endpoint()}}).alive(t)
	one, two := c.begin(testContext(t), "1"), c.begin(testContext(t), "2")
	<-b.begun
	eventually(t, "the other one waits", func() bool { return busy.Stats().Waiting == 1 })
	if _, err := c.Request(testContext(t), []byte("3")); !errors.Is(err, ErrBusy) {
		t.Errorf("a third request: %v", err)
	}
	second := startServer(t, ServerOptions{Handler: named("second")})
	must(t, c.Connect(second.Endpoint()))
	c.alive(t)
	r, err := c.Do(testContext(t), []byte("4"))
	must(t, err)
	wantBody(t, r.Body, "second", "4")
	// A client that does not announce X-FLP gets no refusal.
	plain := startRawClient(t, busy.Endpoint(), sockets.Options{})
	plain.send("5", "x")
	plain.send("PING")
	plain.want("PONG")
	close(b.release)
	for _, d := range []<-chan result{one, two} {
		if r := <-d; r.err != nil {
			t.Error(r.err)
		}
	}
	eventually(t, "both replies and all refusals are counted", func() bool {
		st := busy.Stats()
		return st.Busy == 3 && st.Replies == 2
	})
}

// TestBusyThenDeadline: while a server that might accept the request is not connected,
// the request waits for it.
func TestBusyThenDeadline(t *testing.T) {
	t.Parallel()
	busy, plug, _ := occupied(t, ServerOptions{MaxWaiting: 1})
	plug.send("2", "x")
	eventually(t, "one request waits", func() bool { return busy.Stats().Waiting == 1 })
	late := freeEndpoint(t)
	c := startClient(t, ClientOptions{Servers: []string{busy.Endpoint(), late}})
	eventually(t, "the first one is alive", func() bool { return c.Servers()[0].State == ServerAlive })
	_, err := c.Request(within(t, 3*time.Second), []byte("x"))
	if none := (*NoReplyError)(nil); !errors.As(err, &none) || !errors.Is(none.Servers[0].Err, ErrBusy) {
		t.Errorf("%v", err)
	}
	done := c.begin(testContext(t), "y")
	eventually(t, "it was refused", func() bool { return c.Stats().Refused == 2 })
	startServer(t, ServerOptions{Bind: late})
	if r := <-done; r.err != nil || r.Server != late {
		t.Errorf("%v from %s", r.err, r.Server)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestWaitingBytes: waiting requests are also bounded in bytes. One request is accepted
// at any size.
func TestWaitingBytes(t *testing.T) {
	t.Parallel()
	s, c, release := occupied(t, ServerOptions{MaxWaitingBytes: 1000})
	defer release()
	c.send("2", strings.Repeat("x", 2000))
	c.send("3", "x")
	c.want("REFUSED", "3", "busy", "")
	if st := s.Stats(); st.Waiting != 1 || st.Busy != 1 {
		t.Errorf("%+v", st)
	}
}

// TestMaxWait: a request that has waited too long for a handler is refused, when a
// handler is free or another request needs its place.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	begun, release := make(chan bool), make(chan bool)
	s := startServer(t, ServerOptions{Concurrency: 1, MaxWaiting: 1, MaxWait: hang, Handler: func(_ context.Context, r [][]byte) ([][]byte, error) {
		if string(r[0]) == "block" {
			begun <- true
			<-release
		}
		return r, nil
	}})
	c := startRawClient(t, s.Endpoint(), sockets.Options{Metadata: map[string]string{property: "1"}})
	c.send("1", "block")
	<-begun
	// age makes the request that waits as old as one that has waited too long.
	age := func() {
		eventually(t, "it waits", func() bool { return s.Stats().Waiting == 1 })
		s.mu.Lock()
		defer s.mu.Unlock()
		first := s.waiting.At(0)
		first.arrived = first.arrived.Add(-hang)
	}
	c.send("2", "makes room for the next")
	age()
	c.send("3", "is there when the handler is free")
	c.want("REFUSED", "2", "busy", "")
	age()
	release <- true
	c.want("1", "block")
	c.want("REFUSED", "3", "busy", "")
	eventually(t, "the reply is counted", func() bool { return s.Stats().Replies == 1 })
	if st := s.Stats(); st.Expired != 2 || st.Requests != 3 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

// TestHandlerError: the error of a handler reaches a client of this package, which
// does not try another server.
func TestHandlerError(t *testing.T) {
	t.Parallel()
	fails := startServer(t, ServerOptions{Handler: func(context.Context, [][]byte) ([][]byte, error) {
		return nil, errors.New("no such lamp " + strings.Repeat("x", 2000))
	}})
	c, second := withSecond(t, fails.Endpoint(), ClientOptions{})
	_, err := c.Request(testContext(t), []byte("x"))
	var failed *HandlerError
	if !errors.As(err, &failed) || failed.Server != fails.Endpoint() || !strings.HasPrefix(failed.Text, "no such lamp ") || len(failed.Text) != maxErrorText {
		t.Errorf("%v", err)
	}
	if n := second.Stats().Requests; n != 0 {
		t.Errorf("another server got the request")
	}
	eventually(t, "the failure is counted", func() bool { return fails.Stats().Failed == 1 })
	if n := fails.Stats().Replies; n != 0 {
		t.Errorf("%d replies", n)
	}
	plain := startRawClient(t, fails.Endpoint(), sockets.Options{})
	plain.send("1", "x")
	eventually(t, "the handler has failed", func() bool { return fails.Stats().Failed == 2 })
	plain.send("PING")
	plain.want("PONG") // and nothing before
}

// TestLargeReply: too large a reply is a handler error.
func TestLargeReply(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{MaxMessageSize: 1000, Handler: func(context.Context, [][]byte) ([][]byte, error) {
		return [][]byte{make([]byte, 1000)}, nil
	}})
	c := startClient(t, ClientOptions{Servers: []string{s.Endpoint()}})
	_, err := c.Request(testContext(t), []byte("x"))
	if failed := (*HandlerError)(nil); !errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
}

// TestSkipDelimiter: with SkipDelimiter, the server removes an empty frame before
// others, as the guide's Python client sends it; without, the handler gets it.
func TestSkipDelimiter(t *testing.T) {
	t.Parallel()
	for _, skip := range []bool{false, true} {
		s := startServer(t, ServerOptions{SkipDelimiter: skip})
		c := startRawClient(t, s.Endpoint(), sockets.Options{})
		c.send("1", "", "body")
		if skip {
			c.want("1", "body")
		} else {
			c.want("1", "", "body")
		}
		c.send("2", "")
		c.want("2", "")
		c.send("3", "body", "", "body")
		c.want("3", "body", "", "body")
	}
}

// TestConcurrency: Concurrency handlers run at once, and no more.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	b := newBlocking()
	s := startServer(t, ServerOptions{Concurrency: 3, Handler: b.handle})
	c := startClient(t, ClientOptions{Servers: []string{s.Endpoint()}})
	var all []<-chan result
	for range 10 {
		all = append(all, c.begin(testContext(t), "x"))
	}
	for range 3 {
		<-b.begun
	}
	eventually(t, "three run and seven wait", func() bool { st := s.Stats(); return st.Active == 3 && st.Waiting == 7 })
	if n := len(b.begun); n > 0 {
		t.Errorf("%d more have begun", n)
	}
	close(b.release)
	for _, d := range all {
		if r := <-d; r.err != nil {
			t.Error(r.err)
		}
	}
}

// TestShutdown: a server that shuts down executes the requests that it has, refuses new
// ones, and answers pings until it ends.
func TestShutdown(t *testing.T) {
	t.Parallel()
	b := newBlocking()
	s := startServer(t, ServerOptions{Concurrency: 1, Handler: b.handle})
	c, second := withSecond(t, s.Endpoint(), ClientOptions{})
	one, two := c.begin(testContext(t), "1"), c.begin(testContext(t), "2")
	eventually(t, "one runs and one waits", func() bool { st := s.Stats(); return st.Active == 1 && st.Waiting == 1 })
	plain := startRawClient(t, s.Endpoint(), sockets.Options{})
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(testContext(t)) }()
	eventually(t, "the shutdown begins", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.draining
	})
	if r, err := c.Do(testContext(t), []byte("3")); err != nil || r.Server != second.Endpoint() {
		t.Errorf("the next request: %v from %s", err, r.Server)
	}
	plain.send("PING")
	plain.want("PONG")
	close(b.release)
	for _, d := range []<-chan result{one, two} {
		if r := <-d; r.err != nil || r.Server != s.Endpoint() {
			t.Errorf("%v from %s", r.err, r.Server)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	idle := startServer(t, ServerOptions{})
	if err := idle.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
}

// TestServerClose: Close ends the context of handlers and waits for them.
func TestServerClose(t *testing.T) {
	t.Parallel()
	s, c, _ := occupied(t, ServerOptions{})
	c.send("2", "x")
	eventually(t, "one waits", func() bool { return s.Stats().Waiting == 1 })
	if err := s.Shutdown(within(t, short)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown with a handler that takes longer: %v", err)
	}
	must(t, s.Close())
	if st := s.Stats(); st.Active != 0 || st.Waiting != 0 || st.Failed != 1 {
		t.Errorf("%+v", st)
	}
}

// TestCurve: with CURVE a client whose key the server knows is served, and others
// are not. Servers can have different keys.
func TestCurve(t *testing.T) {
	t.Parallel()
	client, stranger, one, two := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	server := func(k zmtp.KeyPair) *Server {
		return startServer(t, ServerOptions{Security: sockets.Security{
			CurveServer: true, CurveSecretKey: k.Secret, Authenticate: sockets.AllowKeys(client.Public),
		}})
	}
	first, second := server(one), server(two)
	as := func(k, s zmtp.KeyPair) sockets.Security {
		return sockets.Security{CurveSecretKey: k.Secret, CurveServerKey: s.Public}
	}
	c := startClient(t, ClientOptions{Servers: []string{first.Endpoint()}, Security: as(client, one), RoundRobin: true})
	must(t, c.ConnectSecure(second.Endpoint(), as(client, two)))
	c.alive(t)
	for range 2 {
		_, err := c.Request(testContext(t), []byte("x"))
		must(t, err)
	}
	eventually(t, "each of the two has replied once", func() bool {
		return first.Stats().Replies == 1 && second.Stats().Replies == 1
	})
	denied := startClient(t, ClientOptions{Servers: []string{first.Endpoint()}, Security: as(stranger, one)})
	eventually(t, "the stranger is refused", func() bool { return denied.Servers()[0].Err != nil })
	if _, err := denied.Request(within(t, short), []byte("x")); !errors.Is(err, ErrNoReply) {
		t.Errorf("a stranger's request: %v", err)
	}
}

// TestServerOptions: all invalid options are reported at once.
func TestServerOptions(t *testing.T) {
	t.Parallel()
	_, err := NewServer(testContext(t), ServerOptions{Concurrency: -1, MaxWaiting: -1, MaxWaitingBytes: -1, MaxWait: -1, MaxQueuedBytes: -1, MaxClients: -1})
	for _, field := range []string{"Handler", "Bind", "Concurrency", "MaxWaiting", "MaxWaitingBytes", "MaxWait", "MaxQueuedBytes", "MaxClients"} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+": ") {
			t.Errorf("no error for %s: %v", field, err)
		}
	}
	s := startServer(t, ServerOptions{})
	if _, err := NewServer(testContext(t), ServerOptions{Bind: s.Endpoint(), Handler: echo}); err == nil {
		t.Error("two servers have the same endpoint")
	}
}

// FuzzControl: a control frame is parsed as a number only if it is that number's frame.
func FuzzControl(f *testing.F) {
	for _, s := range []string{"", "0", "1", "7", "01", "18446744073709551615", "18446744073709551616", "28446744073709551615", "-1", "1 "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		n := parseControl(frame)
		var c control
		c.set(n)
		if n > 0 && string(c.frame()) != string(frame) {
			t.Errorf("%q is taken for %d", frame, n)
		}
	})
}

// TestFramesOfWaitingRequestsCount: frames without bytes occupy memory, and count.
func TestFramesOfWaitingRequestsCount(t *testing.T) {
	t.Parallel()
	s, c, release := occupied(t, ServerOptions{MaxWaitingBytes: 100_000})
	defer release()
	frames := make([]string, 10_000)
	frames[0] = "2"
	c.send(frames...)
	c.send("3", "x")
	c.want("REFUSED", "3", "busy", "")
	if st := s.Stats(); st.Waiting != 1 || st.Busy != 1 {
		t.Errorf("%+v", st)
	}
}

// TestOneClientLeavesPlaces: one client does not take all places for requests that wait,
// however many connections it has.
func TestOneClientLeavesPlaces(t *testing.T) {
	t.Parallel()
	o := ServerOptions{Concurrency: 1, MaxWaiting: 80, MaxWaitingBytes: 8000, MaxWait: time.Hour}
	for _, bytes := range []int{1, 400} {
		s := &Server{opts: o, shares: map[any]share{}, active: 1, workers: 1}
		s.work.L = &s.mu
		fill := func(client any) int {
			requests := make([]request, 1000)
			for i := range requests {
				requests[i].client, requests[i].bytes = client, bytes
			}
			return len(requests) - len(s.admit(requests, nil, 0, 0))
		}
		most := min(80, 8000/bytes)
		one, other := fill("one"), fill("other")
		if one < most*6/8 || one > most*7/8+1 || one+other != most || other == 0 {
			t.Errorf("requests of %d bytes: %d of one client wait, and %d of another; room is for %d", bytes, one, other, most)
		}
		for s.waiting.Len() > 0 {
			s.pop()
		}
		if len(s.shares) != 0 || s.bytes != 0 {
			t.Errorf("%d clients have requests, %d bytes", len(s.shares), s.bytes)
		}
	}
}
