package chp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// A client's three connections stand and fall together: if one breaks, for any reason and
// any number of times, every call returns the outcome of its update, and the client is
// ACTIVE with all three again once the server is well.
func TestClientConnectionsAreOne(t *testing.T) {
	t.Parallel()
	pull, err := sockets.NewPull(sockets.Options{}) // fits none of the client's sockets
	must(t, err)
	t.Cleanup(func() { pull.Close() })
	must(t, pull.Bind(testContext(t), "tcp://127.0.0.1:0"))
	mechanism := sockets.Security{PlainServer: true}
	router, err := sockets.NewRouter(sockets.Options{Security: mechanism})
	must(t, err)
	t.Cleanup(func() { router.Close() })
	must(t, router.Bind(testContext(t), "tcp://127.0.0.1:0"))

	hangUp := func(c net.Conn) bool { c.Close(); return true }
	faults := []struct {
		name string
		want error          // the error of later connections, if it is always the same
		do   func(p *proxy) // breaks the connection and those that follow
	}{
		{"reset", nil, func(p *proxy) {
			p.instead(func(c net.Conn) bool { c.(*net.TCPConn).SetLinger(0); return hangUp(c) })
			p.each((*link).reset)
		}},
		{"half-close", nil, func(p *proxy) {
			p.instead(hangUp)
			p.each((*link).halfClose)
		}},
		{"silence", nil, func(p *proxy) {
			p.each((*link).hold)
			p.instead(func(c net.Conn) bool { // until the client gives up
				c.Read(make([]byte, 64))
				for _, err := c.Read(make([]byte, 64)); err == nil; _, err = c.Read(make([]byte, 64)) {
				}
				return hangUp(c)
			})
		}},
		{"garbage", zmtp.ErrVersion, func(p *proxy) {
			p.instead(func(c net.Conn) bool { c.Write([]byte("\xff\xff\x00rubbish")); return hangUp(c) })
			p.each((*link).garble)
		}},
		{"wrong protocol", zmtp.ErrVersion, func(p *proxy) {
			p.instead(func(c net.Conn) bool {
				c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
				return hangUp(c)
			})
			p.each((*link).reset)
		}},
		{"wrong mechanism", zmtp.ErrMechanism, func(p *proxy) {
			p.redirect(router.LastEndpoint())
			p.each((*link).reset)
		}},
		{"wrong socket type", zmtp.ErrIncompatible, func(p *proxy) {
			p.redirect(pull.LastEndpoint())
			p.each((*link).reset)
		}},
	}
	for i, port := range []string{"snapshot", "publisher", "collector"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			server := startServer(t, ServerOptions{HeartbeatInterval: 100 * time.Millisecond})
			proxies, address := newProxies(t, server.Endpoints())
			p := proxies[i]
			var mu sync.Mutex
			var failures []error
			c, err := NewClient(ClientOptions{
				Servers: []string{address}, HeartbeatTimeout: 3 * time.Second,
				OnFailure: func(_ string, err error) {
					mu.Lock()
					defer mu.Unlock()
					failures = append(failures, err)
				},
			})
			must(t, err)
			t.Cleanup(func() { must(t, c.Close()) })
			must(t, c.WaitActive(ctx))
			_, err = c.SetSync(ctx, "first", []byte("x")) // from now on the client has three connections
			must(t, err)
			for _, fault := range faults {
				mu.Lock()
				failures = nil
				mu.Unlock()
				stop := callers(ctx, t, c, server, fault.name)
				home := p.redirect("")
				p.redirect(home)
				fault.do(p)
				least := 2 // the present session ends, and one that follows meets the fault
				if fault.name == "silence" {
					least = 1 // for the next one takes a while to give up
				}
				eventually(t, fault.name+" ends the session", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(failures) >= least && (fault.want == nil || errors.Is(errors.Join(failures...), fault.want))
				})
				p.redirect(home)
				p.instead(nil)
				healed := time.Now()
				_, err := c.SetSync(ctx, "healed", []byte(fault.name))
				for err != nil {
					var unfit *CollectorError
					if !errors.Is(err, ErrUncertain) && !errors.As(err, &unfit) {
						t.Fatalf("%s: %v", fault.name, err)
					}
					_, err = c.SetSync(ctx, "healed", []byte(fault.name))
				}
				t.Logf("%s: well after %v", fault.name, time.Since(healed).Round(time.Millisecond))
				stop()
				p.each((*link).release)
				if err := c.Flush(ctx); err != nil && !errors.Is(err, ErrUncertain) {
					var unfit *CollectorError
					if !errors.As(err, &unfit) {
						t.Errorf("%s: Flush: %v", fault.name, err)
					}
				}
			}
			wantUplink(t, c)
		})
	}
}

// wantUplink checks that a client is ACTIVE with three connections.
func wantUplink(t *testing.T, c *Client) {
	t.Helper()
	eventually(t, "the client has its three connections", func() bool {
		_, err := c.SetSync(testContext(t), "three", []byte("v"))
		return err == nil
	})
}

// callers calls SetSync and Flush until stop is called. A SetSync that succeeds
// must have been applied, and one that was not sent must not have been.
func callers(ctx context.Context, t *testing.T, c *Client, s *Server, name string) (stop func()) {
	var calls sync.WaitGroup
	var over atomic.Bool
	stop = func() {
		over.Store(true)
		calls.Wait()
	}
	t.Cleanup(stop)
	running := func() bool { return !over.Load() && ctx.Err() == nil }
	for n := range 3 {
		calls.Go(func() {
			for i := 0; running(); i++ {
				key := fmt.Sprintf("/%s/%d/%d", name, n, i)
				_, err := c.SetSync(ctx, key, []byte("v"))
				var unfit *CollectorError
				switch {
				case err == nil:
					if _, ok := s.Get(key); !ok {
						t.Errorf("%s: SetSync of %s was acknowledged, and the server does not have it", name, key)
					}
				case errors.As(err, &unfit):
					if _, ok := s.Get(key); ok {
						t.Errorf("%s: %s was reported as not sent, and the server has it", name, key)
					}
				case !errors.Is(err, ErrUncertain):
					t.Errorf("%s: SetSync: %v", name, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	calls.Go(func() {
		for running() {
			_ = c.Flush(ctx)
			time.Sleep(time.Millisecond)
		}
	})
	return stop
}
