package sockets

import (
	"errors"
	"strings"
	"testing"

	"clustermap/internal/sockettest"
)

// TestBareIPv6: an IPv6 address needs no brackets, to bind, to connect and as
// a source; and the source is used on the way to a proxy as well.
func TestBareIPv6(t *testing.T) {
	t.Parallel()
	hasIPv6(t)
	ctx := testContext(t)
	router := open(t, NewRouter, Options{})
	must(t, router.Bind(ctx, "tcp://::1:*"))
	target := strings.TrimPrefix(router.LastEndpoint(), "tcp://")
	bare := "::1" + strings.TrimPrefix(target, "[::1]")
	for _, endpoint := range []string{bare, "::1:0;" + bare, "[::1]:0;" + bare, "::1:*;" + target} {
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect("tcp://"+endpoint))
		echo(t, ctx, dealer, router)
		must(t, dealer.Close())
	}
	port := sourcePort(t)
	p := (&sockettest.SOCKSProxy{}).Start(t)
	dealer := open(t, NewDealer, quick(Options{SOCKSProxy: p.Address}))
	must(t, dealer.Connect("tcp://127.0.0.1:"+port+";"+bare))
	echo(t, ctx, dealer, router)
	if from := p.Clients(); from[0] != "127.0.0.1:"+port {
		t.Errorf("the proxy's client comes from %q", from)
	}
}

// TestEndpointErrors: sockets refuse bad endpoints at once.
func TestEndpointErrors(t *testing.T) {
	t.Parallel()
	s := open(t, NewDealer, Options{})
	var typed *EndpointError
	if err := s.Bind(testContext(t), "tcp://nowhere"); !errors.As(err, &typed) {
		t.Errorf("Bind: %v", err)
	}
	if err := s.Connect("tcp://*:5555"); !errors.As(err, &typed) {
		t.Errorf("Connect: %v", err)
	}
	if got := s.LastEndpoint(); got != "" {
		t.Errorf("LastEndpoint after failures: %q", got)
	}
}
