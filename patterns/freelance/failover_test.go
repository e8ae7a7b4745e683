package freelance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// freeEndpoint returns an endpoint without a listener.
func freeEndpoint(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("tcp://127.0.0.1:%d", testenv.FreePort(t))
}

// TestSilentServerBeforeDeadline: a request goes from a silent server to the next one
// before its deadline, even if ServerTTL is much longer.
func TestSilentServerBeforeDeadline(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	raw.setDeaf(true)
	c, _ := withSecond(t, raw.endpoint, ClientOptions{Timeout: 5 * time.Second, PingInterval: hang, ServerTTL: 2 * hang})
	r, err := c.Do(context.Background(), []byte("x"))
	must(t, err)
	wantBody(t, r.Body, "second", "x")
	if st := c.Stats(); st.Resent != 1 || st.Silences != 1 || st.Pings == 0 {
		t.Errorf("%+v", st)
	}
	// The next request does not try it again.
	if _, err = c.Request(testContext(t), []byte("y")); err != nil {
		t.Error(err)
	}
	if n := len(raw.got()); n != 1 {
		t.Errorf("the silent server got %d requests", n)
	}
	// A late reply is dropped.
	first := raw.await(t, 1)
	raw.send(t, first, string(first.frames[0]), "late")
	eventually(t, "the late reply is counted", func() bool { return c.Stats().Late == 1 })
	if st := c.Servers()[0].State; st != ServerAlive {
		t.Errorf("a server that was heard is %v", st)
	}
}

// TestSlowServerKeepsRequest: a server that answers pings keeps a slow request. The
// request is sent once, however often the client wakes up meanwhile.
func TestSlowServerKeepsRequest(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c, second := withSecond(t, raw.endpoint, ClientOptions{PingInterval: short, ServerTTL: hang})
	ctx, cancel := context.WithTimeout(testContext(t), hang)
	defer cancel()
	done := c.begin(ctx, "slow")
	r := raw.await(t, 1)
	eventually(t, "many pings are answered", func() bool { return raw.pinged() > 10 })
	late := startServer(t, ServerOptions{}) // one more reason to wake up
	must(t, c.Connect(late.Endpoint()))
	c.alive(t)
	raw.send(t, r, string(r.frames[0]), "done")
	if r := <-done; r.err != nil || r.Server != raw.endpoint {
		t.Errorf("%v from %s", r.err, r.Server)
	}
	if n, m := len(raw.got()), second.Stats().Requests+late.Stats().Requests; n != 1 || m != 0 {
		t.Errorf("the request was sent %d times to the slow server and %d times to others", n, m)
	}
}

// TestHedge: with Hedge a request goes to the next server too when the first one
// takes long, and the first reply counts.
func TestHedge(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c, _ := withSecond(t, raw.endpoint, ClientOptions{PingInterval: short, ServerTTL: hang, Hedge: 50 * time.Millisecond})
	r, err := c.Do(testContext(t), []byte("x"))
	must(t, err)
	wantBody(t, r.Body, "second", "x")
	if st := c.Servers()[0].State; st != ServerAlive {
		t.Errorf("the first server is %v", st)
	}
}

// TestMatching: the client accepts a reply only if its control frame is that of a
// request in progress that was sent over the same connection. It drops and counts all
// others.
func TestMatching(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}}).alive(t)
	before := c.begin(testContext(t), "the request before")
	r := raw.await(t, 1)
	raw.send(t, r, "1", "done")
	<-before
	done := c.begin(testContext(t), "x")
	r = raw.await(t, 2)
	number := string(r.frames[0])
	raw.send(t, r, "0"+number, "a leading zero")
	raw.send(t, r, "+"+number, "a sign")
	raw.send(t, r, number+"\x00", "a byte more")
	raw.send(t, r, "", "empty")
	raw.send(t, r, "999", "a number that was not used yet")
	raw.send(t, r, "99999999999999999999999999", "a large number")
	raw.send(t, r, "18446744073709551616", "a larger one than there are")
	raw.send(t, r, "REFUSED", "999", "busy", "")
	raw.send(t, r, "REFUSED", "x", "error", "")
	eventually(t, "nine foreign replies are counted", func() bool { return c.Stats().Foreign == 9 })
	raw.send(t, r, "1", "of the request before")
	raw.send(t, r, "REFUSED", "1", "error", "of the request before")
	eventually(t, "two late replies are counted", func() bool { return c.Stats().Late == 2 })
	raw.send(t, r, number)
	raw.send(t, r, "PING")
	raw.send(t, r, "")
	raw.send(t, r, "REFUSED")
	raw.send(t, r, "REFUSED", number)
	raw.send(t, r, "REFUSED", number, "error")
	raw.send(t, r, "REFUSED", number, "error", "too", "long")
	eventually(t, "seven malformed messages are counted", func() bool { return c.Stats().Malformed == 7 })
	select {
	case r := <-done:
		t.Fatalf("the request ended with %v", r)
	default:
	}
	raw.send(t, r, number, "done")
	raw.send(t, r, number, "done again")
	if r := <-done; r.err != nil || string(r.Body[0]) != "done" {
		t.Errorf("%v", r)
	}
	eventually(t, "the second reply is late", func() bool { return c.Stats().Late == 3 })
}

// TestReplyOfAnotherServer: only a server to which the request was sent can reply to it.
func TestReplyOfAnotherServer(t *testing.T) {
	t.Parallel()
	raw, other := startRaw(t), startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint, other.endpoint}, RoundRobin: true}).alive(t)
	d := c.begin(testContext(t), "first") // goes to raw
	first := raw.await(t, 1)
	e := c.begin(testContext(t), "second") // goes to other
	second := other.await(t, 1)
	other.send(t, second, string(first.frames[0]), "not mine")
	eventually(t, "it is counted", func() bool { return c.Stats().Foreign == 1 })
	raw.send(t, first, string(first.frames[0]), "mine")
	other.send(t, second, string(second.frames[0]), "mine")
	for _, d := range []<-chan result{d, e} {
		r := <-d
		must(t, r.err)
		wantBody(t, r.Body, "mine")
	}
}

// TestKilled: when a server process with a hundred requests in progress is killed,
// another one executes all of them. When it is restarted, it is used again.
func TestKilled(t *testing.T) {
	t.Parallel()
	first := startProcess(t, "tcp://"+loopback.Own()+":*")
	c, _ := withSecond(t, first.endpoint, ClientOptions{})
	var waiting []<-chan result
	for i := range 100 {
		waiting = append(waiting, c.begin(testContext(t), "1h", fmt.Sprint(i)))
	}
	eventually(t, "all are at the first server", func() bool { return c.Servers()[0].Waiting == 100 })
	first.Kill()
	for _, d := range waiting {
		r := <-d
		must(t, r.err)
		wantBody(t, r.Body, "second", "1h")
	}
	if st := c.Stats(); st.Resent != 100 || st.Silences != 0 {
		t.Errorf("%+v", st)
	}
	startProcess(t, first.endpoint)
	c.alive(t)
	r, err := c.Do(testContext(t), []byte("0s"))
	if err != nil || r.Server != first.endpoint {
		t.Errorf("after its return: %v from %s", err, r.Server)
	}
}

// TestStopped: when a server process is stopped (SIGSTOP) with a request in progress,
// the request goes to another one. When it continues, it is used again.
func TestStopped(t *testing.T) {
	t.Parallel()
	first := startProcess(t, "tcp://127.0.0.1:*")
	c, _ := withSecond(t, first.endpoint, ClientOptions{Timeout: 5 * time.Second, PingInterval: 100 * time.Millisecond, ServerTTL: hang})
	resume := first.Suspend()
	for range 2 {
		r, err := c.Do(context.Background(), []byte("0s"))
		must(t, err)
		wantBody(t, r.Body, "second", "0s")
	}
	if st := c.Stats(); st.Resent != 1 {
		t.Errorf("a silent server was tried again: %+v", st)
	}
	resume()
	eventually(t, "the first one replies again", func() bool {
		r, err := c.Do(testContext(t), []byte("0s"))
		return err == nil && r.Server == first.endpoint
	})
}

// TestAllAway: if no server replies, the error comes at the deadline and describes
// each server.
func TestAllAway(t *testing.T) {
	t.Parallel()
	nobody := freeEndpoint(t)
	raw := startRaw(t)
	raw.setDeaf(true)
	answers := startRaw(t)
	const limit = 4 * time.Second // half of it for the silent server, the rest for the last one
	c := startClient(t, ClientOptions{Servers: []string{nobody, raw.endpoint, answers.endpoint}, Timeout: limit, PingInterval: hang, ServerTTL: 2 * hang})
	eventually(t, "two are alive, and one refused the connection", func() bool {
		s := c.Servers()
		return s[0].Err != nil && s[1].State == ServerAlive && s[2].State == ServerAlive
	})
	failed := make(chan error)
	for _, ctx := range []context.Context{context.Background(), within(t, limit)} {
		go func() {
			_, err := c.Request(ctx, []byte("x"))
			failed <- err
		}()
	}
	for range 2 {
		err := <-failed
		var none *NoReplyError
		if !errors.As(err, &none) || !errors.Is(err, ErrNoReply) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("unexpected error: %v", err)
		}
		if s := none.Servers; len(s) != 3 || s[0].State != ServerConnecting || s[0].Err == nil || s[0].Sent || s[1].State != ServerSilent || !s[2].Sent {
			t.Errorf("%v", err)
		}
		if text := err.Error(); !strings.Contains(text, nobody+": no connection (") || !strings.Contains(text, answers.endpoint+": sent, no reply") {
			t.Error(text)
		}
	}
	empty := startClient(t, ClientOptions{Timeout: short})
	if _, err := empty.Request(context.Background(), []byte("x")); !errors.Is(err, ErrNoReply) {
		t.Errorf("without servers: %v", err)
	}
	ended, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	if _, err := c.Request(ended, []byte("x")); !errors.Is(err, ErrNoReply) {
		t.Errorf("with a deadline in the past: %v", err)
	}
	if n := c.Stats().Pending; n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

// TestCancelled: a request ends with its context, and its reply is then late.
func TestCancelled(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}})
	ctx, cancel := context.WithCancel(testContext(t))
	done := c.begin(ctx, "x")
	r := raw.await(t, 1)
	cancel()
	if r := <-done; r.err != context.Canceled {
		t.Errorf("%v", r.err)
	}
	raw.send(t, r, string(r.frames[0]), "late")
	eventually(t, "the reply is late", func() bool { return c.Stats().Late == 1 })
	if _, err := c.Request(ctx, []byte("x")); err != context.Canceled {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// TestClientBeforeServer: a request made before its server starts is executed when the
// server has started.
func TestClientBeforeServer(t *testing.T) {
	t.Parallel()
	endpoint := freeEndpoint(t)
	c := startClient(t, ClientOptions{Servers: []string{endpoint}})
	done := c.begin(testContext(t), "x")
	eventually(t, "nobody is there", func() bool { return c.Servers()[0].Err != nil })
	startServer(t, ServerOptions{Bind: endpoint})
	if r := <-done; r.err != nil {
		t.Error(r.err)
	}
}

// TestOnlyServerReturns: a request is sent again to a restarted server, once, if there
// is no other.
func TestOnlyServerReturns(t *testing.T) {
	t.Parallel()
	first := startProcess(t, "tcp://"+loopback.Own()+":*")
	c := startClient(t, ClientOptions{Servers: []string{first.endpoint}}).alive(t)
	done := c.begin(testContext(t), "1h")
	eventually(t, "the request is sent", func() bool { return c.Servers()[0].Waiting == 1 })
	first.Kill()
	eventually(t, "the connection has ended", func() bool { return c.Servers()[0].State == ServerConnecting })
	again := startServer(t, ServerOptions{Bind: first.endpoint})
	if r := <-done; r.err != nil {
		t.Error(r.err)
	}
	if n := again.Stats().Requests; n != 1 {
		t.Errorf("the server got %d requests", n)
	}
}

// TestSilentConnectionRenewed: when a server was silent for ServerTTL and no request
// waits, the client reconnects: the old connection may be dead.
func TestSilentConnectionRenewed(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	raw.setDeaf(true)
	ended := make(chan error, 100)
	c := startClient(t, ClientOptions{
		Servers: []string{raw.endpoint}, PingInterval: short,
		Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventDisconnected {
				select {
				case ended <- e.Err:
				default:
				}
			}
		},
	})
	if err := <-ended; !errors.Is(err, ErrSilent) {
		t.Error(err)
	}
	raw.setDeaf(false)
	done := c.begin(testContext(t), "x")
	r := raw.await(t, 1)
	raw.send(t, r, string(r.frames[0]), "done")
	if r := <-done; r.err != nil {
		t.Error(r.err)
	}
}

// TestManyRequests: many goroutines send requests to three servers, one of which is
// restarted repeatedly. All requests get their own replies.
func TestManyRequests(t *testing.T) {
	t.Parallel()
	var endpoints []string
	for range 2 {
		endpoints = append(endpoints, startServer(t, ServerOptions{}).Endpoint())
	}
	unsteady := freeEndpoint(t)
	c := startClient(t, ClientOptions{Servers: append(endpoints, unsteady), RoundRobin: true})
	ctx := testContext(t)
	stop := make(chan bool)
	var replacing, requesting sync.WaitGroup
	replacing.Go(func() {
		for {
			s, err := NewServer(ctx, ServerOptions{Bind: unsteady, Handler: echo})
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
			case <-time.After(10 * time.Millisecond):
			}
			s.Close()
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for g := range 16 {
		requesting.Go(func() {
			for i := range 200 {
				a, b := fmt.Sprint(g), fmt.Sprint(i)
				reply, err := c.Request(ctx, []byte(a), []byte(b))
				if err != nil || len(reply) != 2 || string(reply[0]) != a || string(reply[1]) != b {
					t.Errorf("request %s, %s: reply %q, %v", a, b, reply, err)
					return
				}
			}
		})
	}
	requesting.Wait()
	close(stop)
	replacing.Wait()
	st := c.Stats()
	if st.Replies != 16*200 || st.Pending != 0 {
		t.Errorf("%+v", st)
	}
	t.Logf("%+v", st)
}

// TestRoundRobin: with RoundRobin, requests are spread evenly.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	var all []*Server
	c := startClient(t, ClientOptions{RoundRobin: true})
	for range 3 {
		s := startServer(t, ServerOptions{})
		all = append(all, s)
		must(t, c.Connect(s.Endpoint()))
		must(t, c.Connect(s.Endpoint())) // does nothing
	}
	c.alive(t)
	for range 30 {
		_, err := c.Request(testContext(t), []byte("x"))
		must(t, err)
	}
	for _, s := range all {
		if n := s.Stats().Requests; n != 10 {
			t.Errorf("one of three got %d of 30", n)
		}
	}
}

// TestClientBounds: requests beyond MaxRequests and MaxMessageSize fail, and so do
// invalid endpoints and options.
func TestClientBounds(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint}, MaxRequests: 2, MaxMessageSize: 1000}).alive(t)
	if _, err := c.Request(testContext(t), make([]byte, 1000)); !errors.Is(err, sockets.ErrTooLarge) {
		t.Errorf("a large request: %v", err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	a, b := c.begin(ctx, "a"), c.begin(ctx, "b")
	raw.await(t, 2)
	if _, err := c.Request(ctx, []byte("c")); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("one request more: %v", err)
	}
	cancel()
	<-a
	<-b
	var endpoint *sockets.EndpointError
	if err := c.Connect("nonsense"); !errors.As(err, &endpoint) {
		t.Errorf("connect to nonsense: %v", err)
	}
	if _, err := NewClient(ClientOptions{Servers: []string{raw.endpoint, "tcp://*:1"}}); !errors.As(err, &endpoint) {
		t.Errorf("a wildcard: %v", err)
	}
	if err := c.Disconnect("tcp://127.0.0.1:1"); !errors.Is(err, ErrUnknownServer) {
		t.Errorf("disconnect from a stranger: %v", err)
	}
	_, err := NewClient(ClientOptions{Timeout: -1, PingInterval: 2, ServerTTL: 1, MaxRequests: -1, Hedge: -1})
	for _, field := range []string{"Timeout", "ServerTTL", "MaxRequests", "Hedge"} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+": ") {
			t.Errorf("no error for %s: %v", field, err)
		}
	}
}

// TestFullQueue: when the queue for a server is full, a request waits for room during
// the server's share of the time, and then goes to the next server.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	c, large := fullQueue(t, startServer(t, ServerOptions{Handler: named("second")}).Endpoint())
	reply, err := c.Request(within(t, 4*time.Second), []byte("x"))
	must(t, err)
	wantBody(t, reply, "second", "x")
	must(t, c.Close())
	for _, d := range large {
		if r := <-d; r.err != nil && !errors.Is(r.err, ErrClosed) {
			t.Error(r.err)
		}
	}
}

// TestClientClose: requests in progress end with ErrClosed.
func TestClientClose(t *testing.T) {
	t.Parallel()
	raw := startRaw(t)
	c := startClient(t, ClientOptions{Servers: []string{raw.endpoint, freeEndpoint(t)}})
	a := c.begin(testContext(t), "a")
	raw.await(t, 1)
	must(t, c.Close())
	must(t, c.Close())
	if r := <-a; !errors.Is(r.err, ErrClosed) || !errors.Is(r.err, net.ErrClosed) {
		t.Errorf("%v", r.err)
	}
	if _, err := c.Request(testContext(t), []byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed client: %v", err)
	}
	if err := c.Connect(raw.endpoint); !errors.Is(err, ErrClosed) {
		t.Errorf("connect a closed client: %v", err)
	}
}
