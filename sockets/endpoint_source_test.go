package sockets

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestLibzmq_socks: messages go by way of the proxy, to an address or a name, with or
// without a password, and also if the proxy begins to listen only later. The connection to
// the proxy comes from the source address of the endpoint, where there is one.
func TestLibzmq_socks(t *testing.T) {
	t.Parallel()
	push := bind(t, NewPush, Options{})
	host, port, _ := cutLast(strings.TrimPrefix(push.LastEndpoint(), "tcp://"))
	target := host + ":" + port
	source := sourcePort(t)
	const user, password = "someuser", "somepass"
	for name, c := range map[string]struct {
		endpoint string
		proxy    *proxyServer
		o        Options
		late     bool   // the proxy listens when an attempt has failed
		asked    string // what the proxy is asked for
		from     string // where its client comes from
	}{
		"no proxy":       {endpoint: target},
		"address":        {endpoint: target, proxy: &proxyServer{}, asked: "1 " + host},
		"late":           {endpoint: target, proxy: &proxyServer{}, late: true, asked: "1 " + host},
		"name":           {endpoint: "service.invalid:" + port, proxy: &proxyServer{}, asked: "3 service.invalid"},
		"IPv6":           {endpoint: "::1:" + port, proxy: &proxyServer{onlyIPv4: true}, asked: "4 ::1"},
		"IPv6, brackets": {endpoint: "[::1]:" + port, proxy: &proxyServer{onlyIPv4: true}, asked: "4 ::1"},
		"any source":     {endpoint: "*:*;" + target, proxy: &proxyServer{}, asked: "1 " + host, from: "127.0.0.1:"},
		"any port":       {endpoint: "127.0.0.1:0;" + target, proxy: &proxyServer{}, asked: "1 " + host, from: "127.0.0.1:"},
		"source":         {endpoint: "127.0.0.1:" + source + ";" + target, proxy: &proxyServer{}, asked: "1 " + host, from: "127.0.0.1:" + source},
		"password":       {endpoint: target, proxy: &proxyServer{user: user, password: password}, o: Options{SOCKSUser: user, SOCKSPassword: password}, asked: "1 " + host},
		"password, late": {endpoint: target, proxy: &proxyServer{user: user, password: password}, o: Options{SOCKSUser: user, SOCKSPassword: password}, late: true, asked: "1 " + host},
		"no password":    {endpoint: target, proxy: &proxyServer{user: user}, o: Options{SOCKSUser: user}, asked: "1 " + host},
	} {
		// One after another: the PUSH divides its messages among its peers.
		seen := newEvents()
		c.o.Monitor = seen.Tell
		if c.late {
			c.proxy.address = strings.TrimPrefix(freePort(t), "tcp://")
			c.o.SOCKSProxy = c.proxy.address
		} else if c.proxy != nil {
			c.o.SOCKSProxy = startProxy(t, c.proxy).address
		}
		pull := open(t, NewPull, quick(c.o))
		if got := pull.Options(); got.SOCKSProxy != c.o.SOCKSProxy || got.SOCKSUser != c.o.SOCKSUser || got.SOCKSPassword != c.o.SOCKSPassword {
			t.Errorf("%s: the options are %q %q %q", name, got.SOCKSProxy, got.SOCKSUser, got.SOCKSPassword)
		}
		must(t, pull.Connect("tcp://"+c.endpoint))
		if c.late {
			if e := seen.Await(t, EventConnectFailed); !errors.Is(e.Err, syscall.ECONNREFUSED) {
				t.Errorf("%s: %+v", name, e)
			}
			startProxy(t, c.proxy)
		}
		ctx := testContext(t)
		for _, text := range []string{"ABC", "DEF"} {
			must(t, push.Send(ctx, []byte(text)))
			wantRecv(t, func() (Message, error) { return pull.Recv(ctx) }, text)
		}
		must(t, pull.Close())
		eventually(t, "the PULL has gone", func() bool { return len(push.Peers()) == 0 })
		if c.proxy == nil {
			continue
		}
		if got := c.proxy.requests(); got[len(got)-1] != c.asked {
			t.Errorf("%s: the proxy was asked for %q", name, got)
		}
		for _, from := range c.proxy.clients() {
			if !strings.HasPrefix(from, c.from) {
				t.Errorf("%s: the proxy's client comes from %s", name, from)
			}
		}
	}
	longest := strings.Repeat("x", 255)
	for field, o := range map[string]Options{
		"":              {SOCKSProxy: "somehost:1080", SOCKSUser: longest, SOCKSPassword: longest},
		"SOCKSUser":     {SOCKSProxy: "somehost:1080", SOCKSUser: longest + "x"},
		"SOCKSPassword": {SOCKSProxy: "somehost:1080", SOCKSUser: "u", SOCKSPassword: longest + "x"},
	} {
		s, err := NewSub(o)
		var fault *OptionError
		switch {
		case field == "" && err == nil:
			if got := s.Options(); got.SOCKSUser != longest || got.SOCKSPassword != longest {
				t.Errorf("%d and %d bytes are left", len(got.SOCKSUser), len(got.SOCKSPassword))
			}
			must(t, s.Close())
		case field == "" || !errors.As(err, &fault) || fault.Field != field:
			t.Errorf("%s: %v", field, err)
		}
	}
}

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
