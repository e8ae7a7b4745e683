package sockets

import (
	"errors"
	"strings"
	"testing"
)

// TestLibzmq_socks: messages go by way of the proxy, and the connection to the
// proxy comes from the source address of the endpoint, where there is one.
func TestLibzmq_socks(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	target := strings.TrimPrefix(router.LastEndpoint(), "tcp://")
	port := sourcePort(t)
	for source, want := range map[string]string{
		"": "127.0.0.1:", "*:*;": "127.0.0.1:", "127.0.0.1:0;": "127.0.0.1:",
		"127.0.0.1:" + port + ";": "127.0.0.1:" + port,
	} {
		p := startProxy(t, &proxyServer{})
		dealer := open(t, NewDealer, quick(Options{SOCKSProxy: p.address}))
		must(t, dealer.Connect("tcp://"+source+target))
		echo(t, ctx, dealer, router)
		for _, from := range p.clients() {
			if !strings.HasPrefix(from, want) {
				t.Errorf("source %q: the proxy's client comes from %s", source, from)
			}
		}
		must(t, dealer.Close())
	}
}

// TestS16_BareIPv6: an IPv6 address needs no brackets, to bind, to connect and as
// a source; and the source is used on the way to a proxy as well.
func TestS16_BareIPv6(t *testing.T) {
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
	p := startProxy(t, &proxyServer{})
	dealer := open(t, NewDealer, quick(Options{SOCKSProxy: p.address}))
	must(t, dealer.Connect("tcp://127.0.0.1:"+port+";"+bare))
	echo(t, ctx, dealer, router)
	if from := p.clients(); from[0] != "127.0.0.1:"+port {
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
