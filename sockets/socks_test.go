package sockets

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/sockettest"
)

// TestSOCKS: messages pass through the proxy, which resolves names itself.
func TestSOCKS(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	_, port, _ := cutLast(router.LastEndpoint())
	for _, p := range []*sockettest.SOCKSProxy{{}, {User: "me", Password: "secret"}, {User: "me"}} {
		p.Start(t)
		for host, want := range map[string]string{
			"127.0.0.1": "1 127.0.0.1", "service.invalid": "3 service.invalid",
		} {
			dealer := open(t, NewDealer, Options{SOCKSProxy: p.Address, SOCKSUser: p.User, SOCKSPassword: p.Password})
			must(t, dealer.Connect("tcp://"+host+":"+port))
			echo(t, ctx, dealer, router)
			if got := p.Requests(); got[len(got)-1] != want {
				t.Errorf("the proxy was asked for %q, want %q", got, want)
			}
		}
	}
	// A proxy that needs no password does not get one.
	p := (&sockettest.SOCKSProxy{}).Start(t)
	dealer := open(t, NewDealer, Options{SOCKSProxy: p.Address, SOCKSUser: "me", SOCKSPassword: "x"})
	must(t, dealer.Connect("tcp://127.0.0.1:"+port))
	echo(t, ctx, dealer, router)
}

// TestSOCKSFails: each failure is reported with its reason, and the socket tries again.
func TestSOCKSFails(t *testing.T) {
	t.Parallel()
	noProxy := strings.TrimPrefix(freePort(t), "tcp://")
	plain := (&sockettest.SOCKSProxy{}).Start(t).Address
	strict := (&sockettest.SOCKSProxy{User: "me", Password: "secret"}).Start(t).Address
	silent := (&sockettest.SOCKSProxy{Silent: true}).Start(t).Address
	router := bind(t, NewRouter, Options{HandshakeTimeout: hang}) // not a proxy
	for _, c := range []struct {
		o        Options
		endpoint string
		reason   string
		is       error
	}{
		{Options{SOCKSProxy: noProxy}, "tcp://127.0.0.1:1", "refused", syscall.ECONNREFUSED},
		{Options{SOCKSProxy: plain}, freePort(t), "connection refused", syscall.ECONNREFUSED},
		{Options{SOCKSProxy: plain}, "tcp://forbidden.invalid:1", "not allowed", nil},
		{Options{SOCKSProxy: plain}, "tcp://" + strings.Repeat("x", 256) + ":1", "too long", nil},
		{Options{SOCKSProxy: strict}, "tcp://127.0.0.1:1", "no authentication method", nil},
		{Options{SOCKSProxy: strict, SOCKSUser: "me", SOCKSPassword: "guess"}, "tcp://127.0.0.1:1", "password refused", nil},
		{Options{SOCKSProxy: strings.TrimPrefix(router.LastEndpoint(), "tcp://")}, "tcp://127.0.0.1:1", "not a SOCKS 5 proxy", nil},
		{Options{SOCKSProxy: silent, ConnectTimeout: 20 * time.Millisecond}, "tcp://127.0.0.1:1", "", nil},
		{Options{SOCKSProxy: silent, HandshakeTimeout: 20 * time.Millisecond}, "tcp://127.0.0.1:1", "", os.ErrDeadlineExceeded},
	} {
		seen := newEvents()
		c.o.Monitor = seen.Tell
		dealer := open(t, NewDealer, quick(c.o))
		must(t, dealer.Connect(c.endpoint))
		for range 2 {
			e := seen.Await(t, EventConnectFailed)
			if c.o.ConnectTimeout > 0 {
				var timeout net.Error
				if !errors.As(e.Err, &timeout) || !timeout.Timeout() {
					t.Errorf("%+v", e)
				}
				continue
			}
			var typed *ProxyError
			if !errors.As(e.Err, &typed) || typed.Proxy != c.o.SOCKSProxy {
				t.Errorf("%+v", e)
			}
			if c.is != nil && !errors.Is(e.Err, c.is) || !strings.Contains(e.Err.Error(), c.reason) {
				t.Errorf("%v, want %q, %v", e.Err, c.reason, c.is)
			}
		}
		within(t, "Close", func() { must(t, dealer.Close()) })
	}
	// A close does not wait for a proxy that says nothing.
	dealer := open(t, NewDealer, Options{SOCKSProxy: silent})
	must(t, dealer.Connect("tcp://127.0.0.1:1"))
	within(t, "Close", func() { must(t, dealer.Close()) })
}
