package sockets

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"clustermap/internal/sockettest"
)

// TestIPv6: with the option the wildcard is both families, without it one.
func TestIPv6(t *testing.T) {
	t.Parallel()
	hasIPv6(t)
	ctx := testContext(t)
	router := open(t, NewRouter, Options{IPv6: true})
	must(t, router.Bind(ctx, "tcp://*:*"))
	port, ok := strings.CutPrefix(router.LastEndpoint(), "tcp://[::]:")
	if !ok {
		t.Fatalf("bound as %s", router.LastEndpoint())
	}
	for _, e := range []string{"tcp://[::1]:" + port, "tcp://127.0.0.1:" + port} {
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect(e))
		echo(t, ctx, dealer, router)
	}

	four := open(t, NewRouter, Options{})
	must(t, four.Bind(ctx, "tcp://*:*"))
	port, ok = strings.CutPrefix(four.LastEndpoint(), "tcp://0.0.0.0:")
	if !ok {
		t.Fatalf("bound as %s", four.LastEndpoint())
	}
	// So the port is free for IPv6.
	six := open(t, NewRouter, Options{})
	must(t, six.Bind(ctx, "tcp://[::1]:"+port))
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect("tcp://[::1]:"+port))
	echo(t, ctx, dealer, six)
}

// TestConnectTimeout: an attempt without an answer is given up in time. Here a proxy does
// not answer, since networks refuse sooner or later.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	silent := (&sockettest.SOCKSProxy{Silent: true}).Start(t)
	seen := newEvents()
	dealer := open(t, NewDealer, quick(Options{ConnectTimeout: 10 * time.Millisecond, SOCKSProxy: silent.Address, Monitor: seen.Tell}))
	must(t, dealer.Connect("tcp://127.0.0.1:1"))
	for range 3 {
		var timeout net.Error
		if e := seen.Await(t, EventConnectFailed); !errors.As(e.Err, &timeout) || !timeout.Timeout() {
			t.Errorf("%+v", e)
		}
	}
}
