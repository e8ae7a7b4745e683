package freelance

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// The first request of a client goes to the server that it prefers, also if it has a
// connection to another one earlier. It goes to that one if there is no connection to the
// first one, or none in time.
func TestFirstRequestGoesToThePreferredServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	other := startServer(t, ServerOptions{Handler: named("other")})
	begin := func(preferred string, until time.Time) (*Client, <-chan result) {
		c := startClient(t, ClientOptions{Servers: []string{preferred, other.Endpoint()}, Timeout: hang, PingInterval: hang})
		c.mu.Lock()
		if l := c.links[0]; !l.fresh.IsZero() {
			l.fresh = until
		}
		c.mu.Unlock()
		eventually(t, "the other server is alive", func() bool { return c.Servers()[1].State == ServerAlive })
		return c, c.begin(ctx, "x")
	}
	want := func(done <-chan result, name string) {
		t.Helper()
		r := <-done
		must(t, r.err)
		wantBody(t, r.Body, name, "x")
	}

	gate := make(chan struct{})
	preferred := startServer(t, ServerOptions{Handler: named("preferred")})
	c, done := begin("tcp://"+gated(t, preferred.Endpoint(), gate), time.Now().Add(hang))
	eventually(t, "the request is pending", func() bool { return c.Stats().Pending == 1 || len(done) > 0 })
	close(gate)
	want(done, "preferred")

	_, done = begin("tcp://127.0.0.1:1", time.Now().Add(hang)) // refuses
	want(done, "other")

	_, done = begin("tcp://"+gated(t, preferred.Endpoint(), make(chan struct{})), time.Now().Add(-1))
	want(done, "other")
}

// gated returns an address behind which is that of an endpoint, once gate is closed.
func gated(t *testing.T, endpoint string, gate <-chan struct{}) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		in, err := l.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		select {
		case <-gate:
		case <-ctx.Done():
			return
		}
		var d net.Dialer
		out, err := d.DialContext(ctx, "tcp", endpoint[len("tcp://"):])
		if err != nil {
			return
		}
		defer out.Close()
		defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
		back := make(chan struct{})
		go func() {
			defer close(back)
			copyAll(in, out)
		}()
		copyAll(out, in)
		<-back
	}()
	t.Cleanup(func() {
		cancel()
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// copyAll copies until one side ends, and then ends the other one.
func copyAll(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}
