package chp

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/submit"
	"clustermap/chp/internal/wire"
	"clustermap/internal/loopback"
	"clustermap/sockets"
)

// forgetLimit makes a client send values that its server will refuse.
func forgetLimit(c *Client) {
	c.writer.Inspect(func(s *submit.Server) { s.MaxValue = 1 << 30 })
}

// An update that the server refuses ends with ErrRefused and the reason: at
// once, and independently of the updates before and behind it.
func TestRefusedUpdate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{MaxValueSize: 1000, HeartbeatInterval: hang})
	c := startClient(t, server, ClientOptions{})
	must(t, c.WaitActive(ctx))
	forgetLimit(c)
	refused := func(err error) bool {
		return errors.Is(err, ErrRefused) && errors.Is(err, &MessageError{Reason: ReasonValueTooLarge})
	}
	big := make([]byte, 1001)
	if _, err := c.SetSync(ctx, "alone", big); !refused(err) {
		t.Errorf("SetSync: %v", err)
	}
	must(t, c.Flush(ctx)) // it was told already
	must(t, c.Set(ctx, "alone", big))
	if err := c.Flush(ctx); !refused(err) {
		t.Errorf("Flush: %v", err)
	}
	results := make(chan error, 200)
	for i := range cap(results) {
		go func() {
			value := big
			if i%2 == 0 {
				value = big[:1000]
			}
			_, err := c.SetSync(ctx, fmt.Sprint("k", i), value)
			if (i%2 == 0) == (err == nil) && (err == nil || refused(err)) {
				err = nil
			} else {
				err = fmt.Errorf("update %d of %d bytes: %v", i, len(value), err)
			}
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if c.State() != StateActive || c.Stats().Syncs != 1 {
		t.Errorf("the client is %v and has taken %d snapshots", c.State(), c.Stats().Syncs)
	}
}

// An update that a full map has no room for ends with ErrRefused, too.
func TestUpdateThatAFullMapRefuses(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{MaxMapBytes: 1000, HeartbeatInterval: hang})
	c := startClient(t, server, ClientOptions{})
	if _, err := c.SetSync(ctx, "k", make([]byte, 2000)); !errors.Is(err, ErrRefused) || !errors.Is(err, &MessageError{Reason: ReasonMapFull}) {
		t.Errorf("SetSync: %v", err)
	}
	_, err := c.SetSync(ctx, "k", make([]byte, 500))
	must(t, err)
}

// The server announces its maximum value size: a larger value is refused at once,
// and is not sent.
func TestServerAnnouncesItsLimit(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{MaxValueSize: 1000})
	c := startClient(t, server, ClientOptions{})
	for _, call := range []func() error{
		func() error { return c.Set(ctx, "k", make([]byte, 1001)) },
		func() error { _, err := c.SetSync(ctx, "k", make([]byte, 2<<20)); return err },
	} {
		if err := call(); !errors.Is(err, ErrRefused) || !errors.Is(err, &MessageError{Reason: ReasonValueTooLarge}) || !strings.Contains(err.Error(), "1000") {
			t.Errorf("%v", err)
		}
	}
	_, err := c.SetSync(ctx, "k", make([]byte, 1000))
	must(t, err)
	if refused := server.Stats().Refused; len(refused) > 0 || c.Stats().Syncs != 1 {
		t.Errorf("the server refused %v, and the client took %d snapshots", refused, c.Stats().Syncs)
	}
}

// A client with default options follows a server that takes larger values
// than usual, and can send them.
func TestDefaultClientTakesLargeValues(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const size = DefaultMaxValueSize + 1<<20
	server := startServer(t, ServerOptions{MaxValueSize: 2 * DefaultMaxValueSize})
	follower := startClient(t, server, ClientOptions{})
	must(t, follower.WaitActive(ctx))
	c := startClient(t, server, ClientOptions{})
	seq, err := c.SetSync(ctx, "k", make([]byte, size))
	must(t, err)
	eventually(t, "the follower has the value", func() bool { return follower.Sequence() >= seq })
	joiner := startClient(t, server, ClientOptions{MaxValueSize: 10})
	must(t, joiner.WaitActive(ctx))
	for name, c := range map[string]*Client{"writer": c, "follower": follower, "joiner": joiner} {
		if v, _ := c.Get("k"); len(v) != size || c.Stats().Syncs != 1 {
			t.Errorf("the %s has %d bytes after %d snapshots", name, len(v), c.Stats().Syncs)
		}
	}
}

// An update that a former connection to the collector delivers late does not
// overwrite later updates of the client.
func TestFormerConnectionIsRefused(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	proxies, address := newProxies(t, server.Endpoints())
	c, err := NewClient(ClientOptions{Servers: []string{address}, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	_, err = c.SetSync(ctx, "k", []byte("v0"))
	must(t, err)

	var old *link
	proxies[2].each(func(l *link) { l.hold(); old = l })
	must(t, c.Set(ctx, "k", []byte("v1")))
	eventually(t, "the proxy holds the update", func() bool { return old.holding() > 0 })
	old.cut()
	_, err = c.SetSync(ctx, "k", []byte("v2"))
	for errors.Is(err, ErrUncertain) {
		_, err = c.SetSync(ctx, "k", []byte("v2"))
	}
	must(t, err)
	old.release()
	eventually(t, "the server has refused the late update", func() bool { return server.Stats().Refused[ReasonFormerConnection] > 0 })
	if v, _ := server.Get("k"); string(v) != "v2" {
		t.Errorf("k = %s, though v2 was acknowledged after that was sent", v)
	}
}

// Any peer can announce any properties: only a client that announces itself in full is a
// member.
func TestMembersOfPlainClients(t *testing.T) {
	t.Parallel()
	server := startServer(t, ServerOptions{})
	c := newPlainClient(t, server)
	for i, metadata := range []map[string]string{
		{"X-CHP-Client": "short", "X-CHP-Generation": "1"},
		{"X-CHP-Client": wire.NewID()},
		{"X-CHP-Client": wire.NewID(), "X-CHP-Generation": "-1"},
	} {
		p, err := sockets.NewPub(sockets.Options{Metadata: metadata, FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, Linger: hang})
		must(t, err)
		must(t, p.Connect(server.Endpoints().Collector))
		must(t, p.Send(c.ctx, []byte(fmt.Sprint(i)), make([]byte, 8), nil, nil, []byte("v")))
		must(t, p.Close())
		if m := c.next(); m.key != fmt.Sprint(i) {
			t.Errorf("got %v", m)
		}
	}
	if n := len(server.members.Known()); n != 0 {
		t.Errorf("%d members", n)
	}
}

// A server that accepts connections and says nothing, as a stopped process
// does, does not hold up the next one.
func TestStoppedServerIsPassed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	stopped := stoppedServer(t)
	server := startServer(t, ServerOptions{})
	failures := make(chan error, 100)
	c, err := NewClient(ClientOptions{
		Servers: []string{stopped, server.Endpoints().Snapshot},
		OnFailure: func(server string, err error) {
			if server == stopped {
				failures <- err
			}
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	begun := time.Now()
	must(t, c.WaitActive(ctx))
	t.Logf("ACTIVE after %v", time.Since(begun))
	if c.Server() != server.Endpoints().Snapshot {
		t.Errorf("the client follows %s", c.Server())
	}
	if err := <-failures; !errors.Is(err, follow.ErrOvertaken) {
		t.Errorf("of the first server it said %v", err)
	}
}

// stoppedServer returns the address of a server of which only the system answers.
func stoppedServer(t testing.TB) string {
	t.Helper()
	for host := loopback.Own(); ; {
		first, err := net.Listen("tcp", host+":0")
		must(t, err)
		t.Cleanup(func() { first.Close() })
		port := first.Addr().(*net.TCPAddr).Port
		if port > 65533 {
			continue
		}
		second, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port+1))
		if err != nil {
			continue
		}
		t.Cleanup(func() { second.Close() })
		return fmt.Sprintf("tcp://%s:%d", host, port)
	}
}
