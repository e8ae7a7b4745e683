package freelance

import (
	"context"
	"errors"
	"strings"
	"testing"

	"clustermap/sockets"
)

// The tests have the numbers of the requirements of RFC 10, in the order of its text.

// TestClientsAddressServers: a client sends a request to one server, and a server
// sends nothing to a client that has sent nothing.
func TestClientsAddressServers(t *testing.T) {
	t.Parallel()
	first, second := startRaw(t), startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{first.endpoint, second.endpoint}}).alive(t)
	done := c.begin(testContext(t), "hello")
	r := first.await(t, 1)
	first.send(t, r, string(r.frames[0]), "done")
	if r := <-done; r.err != nil || r.Server != first.endpoint {
		t.Errorf("%v from %s", r.err, r.Server)
	}
	if n := len(second.got()); n > 0 {
		t.Errorf("the other server got %d requests", n)
	}

	s := startServer(t, ServerOptions{})
	silent := startRawClient(t, s.Endpoint(), sockets.Options{})
	talking := startRawClient(t, s.Endpoint(), sockets.Options{})
	talking.send("1", "body")
	talking.want("1", "body")
	silent.send("PING")
	silent.want("PONG") // its first message
}

// TestPingIsASingleFrame: a ping is a single frame. PING followed by a body is a request with that
// control frame.
func TestPingIsASingleFrame(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	startClient(t, ClientOptions{Servers: []string{raw.endpoint}, PingInterval: short})
	eventually(t, "a ping comes", func() bool { return raw.pinged() > 0 })
	if r := raw.got(); len(r) > 0 {
		t.Errorf("something else came: %q", r[0].frames)
	}

	s := startServer(t, ServerOptions{})
	c := startRawClient(t, s.Endpoint(), sockets.Options{})
	c.send("PING", "body")
	c.want("PING", "body")
	if st := s.Stats(); st.Pings != 0 || st.Requests != 1 {
		t.Errorf("%d pings and %d requests", st.Pings, st.Requests)
	}
}

// TestPongWhileBusy: a server answers each ping with one frame, also while all handlers are
// busy and its queue is full.
func TestPongWhileBusy(t *testing.T) {
	t.Parallel()
	begun, release := make(chan bool, 1), make(chan bool)
	s := startServer(t, ServerOptions{Concurrency: 1, MaxWaiting: 1, Handler: func(_ context.Context, r [][]byte) ([][]byte, error) {
		begun <- true
		<-release
		return r, nil
	}})
	defer close(release)
	c := startRawClient(t, s.Endpoint(), sockets.Options{})
	c.send("PING")
	c.want("PONG")
	c.send("1", "x")
	<-begun
	for range 5 {
		c.send("2", "x")
		c.send("PING")
		c.want("PONG")
	}
	if st := s.Stats(); st.Pings != 6 || st.Active != 1 || st.Waiting != 1 || st.Busy != 4 {
		t.Errorf("%+v", st)
	}
}

// TestRequestNeedsABody: a request is a control frame and at least one frame of body. The
// client refuses one without a body; the server drops and counts it.
func TestRequestNeedsABody(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}})
	done := c.begin(testContext(t), "one", "", "three")
	r := raw.await(t, 1)
	wantBody(t, r.frames[1:], "one", "", "three")
	if len(r.frames[0]) == 0 {
		t.Error("the control frame is empty")
	}
	raw.send(t, r, string(r.frames[0]), "done")
	<-done
	if _, err := c.Request(testContext(t)); !errors.Is(err, ErrNoBody) {
		t.Errorf("a request without a body: %v", err)
	}

	s := startServer(t, ServerOptions{})
	client := startRawClient(t, s.Endpoint(), sockets.Options{})
	client.send("1")
	client.send("")
	client.send("2", "body")
	client.want("2", "body")
	if st := s.Stats(); st.Malformed != 2 || st.Requests != 1 {
		t.Errorf("%+v", st)
	}
}

// TestControlFrameReturned: any control frame comes back unchanged, followed by at
// least one frame.
func TestControlFrameReturned(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{Handler: func(_ context.Context, r [][]byte) ([][]byte, error) {
		if string(r[0]) == "nothing" {
			return nil, nil
		}
		return r, nil
	}})
	c := startRawClient(t, s.Endpoint(), sockets.Options{})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, control := range []string{"7", "", "\x00\xff\x00", string(every), strings.Repeat("\xa5", 100_000), "PONG", "REFUSED"} {
		c.send(control, "body")
		c.want(control, "body")
		c.send(control, "", "body", "")
		c.want(control, "", "body", "")
	}
	c.send("8", "nothing")
	c.want("8", "")
}

// TestControlFrameNumbers: the client numbers its requests in the control frame,
// and matches replies by it, in any order.
func TestControlFrameNumbers(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}}).alive(t)
	const n = 10
	done := make(map[string]<-chan result)
	for _, body := range strings.Split("abcdefghij", "") {
		done[body] = c.begin(testContext(t), body)
	}
	raw.await(t, n)
	all := raw.got()
	seen := map[string]bool{}
	for i := range all {
		r := all[n-1-i]
		seen[string(r.frames[0])] = true
		raw.send(t, r, string(r.frames[0]), "reply to", string(r.frames[1]))
	}
	for body, d := range done {
		r := <-d
		must(t, r.err)
		wantBody(t, r.Body, "reply to", body)
	}
	for _, number := range strings.Fields("1 2 3 4 5 6 7 8 9 10") {
		if !seen[number] {
			t.Errorf("no request has the number %s", number)
		}
	}
}

// TestBothSidesAreRouters: both sides are ROUTER sockets.
func TestBothSidesAreRouters(t *testing.T) {
	t.Parallel()
	types := make(chan string, 2)
	monitor := func(e sockets.Event) {
		if e.Kind == sockets.EventHandshakeSucceeded {
			types <- e.Peer.SocketType()
		}
	}
	s := startServer(t, ServerOptions{Monitor: monitor})
	startClient(t, ClientOptions{Servers: []string{s.Endpoint()}, Monitor: monitor})
	for range 2 {
		if got := <-types; got != "ROUTER" {
			t.Errorf("a peer is a %s", got)
		}
	}
}

// TestClientHasNoIdentity: a client announces no identity, so the server makes
// one up.
func TestClientHasNoIdentity(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}})
	done := c.begin(testContext(t), "x")
	r := raw.await(t, 1)
	if id, _ := r.peer.Property("identity"); id != "" {
		t.Errorf("the client's identity is %q", id)
	}
	if id := r.peer.Identity(); len(id) != 5 || id[0] != 0 {
		t.Errorf("the client is known as %q", id)
	}
	raw.send(t, r, string(r.frames[0]), "done")
	<-done
}

// TestServerHasIdentity: a server announces an identity, and does not start without
// a valid one.
func TestServerHasIdentity(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := startRawClient(t, s.Endpoint(), sockets.Options{})
	if id, _ := c.peer.Property("identity"); id == "" {
		t.Error("the server has no identity")
	}
	for name, o := range map[string]ServerOptions{
		"all addresses":               {Bind: "tcp://*:5555"},
		"all addresses in numbers":    {Bind: "tcp://0.0.0.0:5555"},
		"all addresses of IPv6":       {Bind: "tcp://[::]:*"},
		"a path that is not known":    {Bind: "ipc://*"},
		"256 bytes":                   {Bind: "tcp://127.0.0.1:*", Advertise: "tcp://" + strings.Repeat("x", 245) + ":5555"},
		"a wildcard address":          {Bind: "tcp://127.0.0.1:*", Advertise: "tcp://*:5555"},
		"a wildcard port":             {Bind: "tcp://127.0.0.1:*", Advertise: "tcp://127.0.0.1:*"},
		"an endpoint with no address": {Bind: "tcp://127.0.0.1:*", Advertise: "example"},
	} {
		o.Handler = echo
		s, err := NewServer(testContext(t), o)
		if option := (*OptionError)(nil); !errors.As(err, &option) || option.Field != "Advertise" {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// TestIdentityIsEndpoint: the identity is exactly the text to which clients
// connect: Bind, with the chosen port, or Advertise.
func TestIdentityIsEndpoint(t *testing.T) {
	t.Parallel()
	chosen := startServer(t, ServerOptions{Bind: "tcp://127.0.0.1:0"})
	if e := chosen.Endpoint(); strings.HasSuffix(e, ":0") || e != chosen.Bound() {
		t.Errorf("endpoint %s, bound to %s", e, chosen.Bound())
	}
	given := startServer(t, ServerOptions{Bind: freeEndpoint(t)})
	if e := given.Endpoint(); e != given.opts.Bind || e != given.Bound() {
		t.Errorf("bound to %s, the endpoint is %s", given.Bound(), e)
	}
	byName := startServer(t, ServerOptions{Bind: "tcp://localhost:*"})
	port := byName.Bound()[strings.LastIndex(byName.Bound(), ":"):]
	if e := byName.Endpoint(); e != "tcp://localhost"+port {
		t.Errorf("bound to a name, the endpoint is %s", e)
	}
	long := "tcp://" + strings.Repeat("x", 244) + ":5555" // 255 bytes
	advertised := startServer(t, ServerOptions{Bind: "tcp://*:*", Advertise: long})
	for s, connect := range map[*Server]string{
		byName:     byName.Endpoint(),
		advertised: strings.Replace(advertised.Bound(), "0.0.0.0", "127.0.0.1", 1),
	} {
		c := startRawClient(t, connect, sockets.Options{})
		if id, _ := c.peer.Property("identity"); id != s.Endpoint() {
			t.Errorf("identity %s of %s", id, s.Endpoint())
		}
		// A client that addresses it by its identity, as the guide's do.
		must(t, c.Send(testContext(t), []byte(s.Endpoint()), []byte("1"), []byte("x")))
		c.want("1", "x")
	}
	if advertised.Endpoint() != long {
		t.Errorf("advertised as %s", advertised.Endpoint())
	}
}

// TestPingsAtIntervals: a client without requests pings its servers at intervals.
func TestPingsAtIntervals(t *testing.T) {
	t.Parallel()
	first, second := startRaw(t), startServer(t, ServerOptions{})
	c := startClient(t, ClientOptions{Servers: []string{first.endpoint, second.Endpoint()}, PingInterval: short, ServerTTL: hang})
	eventually(t, "five pings come to each", func() bool { return first.pinged() >= 5 && second.Stats().Pings >= 5 })
	eventually(t, "the answers come", func() bool { return c.Stats().Pongs >= 10 })
	if st := c.Stats(); st.Malformed+st.Foreign+st.Late > 0 {
		t.Errorf("%+v", st)
	}
}

// TestSilentServer: a server that sends no PONG for three intervals is silent
// and gets no request, until it is heard again.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}, PingInterval: short}).alive(t)
	if c.opts.ServerTTL != 3*short {
		t.Errorf("by default a server lives for %v at intervals of %v", c.opts.ServerTTL, short)
	}
	raw.setDeaf(true)
	eventually(t, "the server is silent, or its connection was made anew", func() bool { return c.Stats().Silences > 0 })
	raw.setDeaf(false)
	eventually(t, "the server is alive", func() bool { return c.Servers()[0].State == ServerAlive })
	done := c.begin(testContext(t), "x")
	r := raw.await(t, 1)
	raw.send(t, r, string(r.frames[0]), "done")
	if r := <-done; r.err != nil {
		t.Error(r.err)
	}
}

// TestNoRequestWhileSilent: a request that waits keeps the connection to a
// silent server. Requests that come later are not sent before the server is heard.
func TestNoRequestWhileSilent(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	raw.setDeaf(true) // from the start, so that no PONG is in flight
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}, PingInterval: short})
	first := c.begin(testContext(t), "first")
	r := raw.await(t, 1)
	eventually(t, "the server is silent", func() bool { return c.Servers()[0].State == ServerSilent })
	second := c.begin(testContext(t), "second")
	eventually(t, "both are in progress", func() bool { return c.Stats().Pending == 2 })
	// So long a request to a server that is not silent takes.
	other := startRaw(t)
	third := startClient(t, ClientOptions{Servers: []string{other.endpoint}, PingInterval: short}).begin(testContext(t), "third")
	q := other.await(t, 1)
	other.send(t, q, string(q.frames[0]), "done")
	must(t, (<-third).err)
	if n := len(raw.got()); n != 1 {
		t.Fatalf("%d requests were sent to a silent server", n)
	}
	raw.send(t, r, string(r.frames[0]), "done") // a late reply shows that the server is alive
	if r := <-first; r.err != nil {
		t.Error(r.err)
	}
	r = raw.await(t, 2)
	raw.send(t, r, string(r.frames[0]), "done")
	if r := <-second; r.err != nil {
		t.Error(r.err)
	}
}
