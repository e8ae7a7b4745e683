package sockets

import (
	"errors"
	"syscall"
	"testing"
	"time"
)

// onlyEndpoint returns the status of a socket's only endpoint.
func onlyEndpoint(t testing.TB, s Socket) EndpointStatus {
	t.Helper()
	all := s.Endpoints()
	if len(all) != 1 {
		t.Fatalf("%d endpoints: %+v", len(all), all)
	}
	return all[0]
}

// TestEndpoints follows an endpoint of Connect through refusals, a connection and its
// end, and the bound one at the other side.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := open(t, NewPull, Options{})
	endpoint := freePort(t)
	push := open(t, NewPush, Options{ReconnectInterval: 5 * time.Millisecond, ReconnectIntervalMax: 10 * time.Millisecond})
	if all := push.Endpoints(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	must(t, push.Connect(endpoint))
	eventually(t, "failures", func() bool {
		e := onlyEndpoint(t, push)
		return e.Endpoint == endpoint && e.Attempts >= 3 && errors.Is(e.Err, syscall.ECONNREFUSED) && e.State == EndpointWaiting &&
			!e.Next.IsZero() && e.Peers == 0
	})
	must(t, pull.Bind(ctx, endpoint))
	must(t, push.WaitPeers(ctx, 1))
	if e := onlyEndpoint(t, push); e != (EndpointStatus{Endpoint: endpoint, State: EndpointConnected, Peers: 1}) {
		t.Errorf("%+v", e)
	}
	must(t, pull.WaitPeers(ctx, 1))
	if e := onlyEndpoint(t, pull); e != (EndpointStatus{Endpoint: endpoint, State: EndpointBound, Peers: 1}) {
		t.Errorf("%+v", e)
	}
	must(t, pull.Close())
	eventually(t, "a refusal", func() bool { e := onlyEndpoint(t, push); return e.Attempts > 0 && e.Err != nil })
	must(t, push.Disconnect(endpoint))
	if all := push.Endpoints(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	for state, want := range map[EndpointState]string{
		EndpointBound: "bound", EndpointConnecting: "connecting", EndpointWaiting: "waiting", EndpointConnected: "connected", 9: "EndpointState(9)",
	} {
		if state.String() != want {
			t.Errorf("%v is not %s", state, want)
		}
	}
}

// TestEndpointsInproc: an endpoint over inproc waits for its name, and is given up when
// the other socket has gone.
func TestEndpointsInproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	names := &Inproc{}
	seen := newEvents()
	push := open(t, NewPush, Options{Inproc: names, Monitor: seen.Tell})
	must(t, push.Connect("inproc://name"))
	if e := onlyEndpoint(t, push); e != (EndpointStatus{Endpoint: "inproc://name", State: EndpointWaiting}) {
		t.Errorf("%+v", e)
	}
	pull := open(t, NewPull, Options{Inproc: names})
	must(t, pull.Bind(ctx, "inproc://name"))
	if e := onlyEndpoint(t, push); e.State != EndpointConnected || e.Peers != 1 {
		t.Errorf("%+v", e)
	}
	if e := onlyEndpoint(t, pull); e.State != EndpointBound || e.Peers != 1 {
		t.Errorf("%+v", e)
	}
	must(t, pull.Close())
	if e := seen.Await(t, EventAbandoned); e.Endpoint != "inproc://name" || e.Err == nil {
		t.Errorf("%+v", e)
	}
	if all := push.Endpoints(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	// An incompatible socket is not tried again.
	rep := open(t, NewRep, Options{Inproc: names})
	must(t, rep.Bind(ctx, "inproc://name"))
	must(t, push.Connect("inproc://name"))
	if e := seen.Await(t, EventAbandoned); e.Err == nil {
		t.Errorf("%+v", e)
	}
}

// TestAbandoned: a socket that gives an endpoint up says so, with the reason, when the
// endpoint can be connected again, from the monitor as well.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	refusing := freePort(t)
	other := bind(t, NewRep, Options{})
	for name, c := range map[string]struct {
		o        Options
		endpoint string
		err      error
	}{
		"refused":        {Options{ReconnectStop: ReconnectStopOnRefused}, refusing, syscall.ECONNREFUSED},
		"no second try":  {Options{ReconnectInterval: -1}, refusing, syscall.ECONNREFUSED},
		"wrong protocol": {Options{ReconnectStop: ReconnectStopOnProtocolError}, other.LastEndpoint(), nil},
		"no handshake":   {Options{ReconnectStop: ReconnectStopOnHandshakeFailed}, other.LastEndpoint(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again := 0
			var push *Push
			made := make(chan struct{})
			events := make(chan Event, 10)
			c.o.Monitor = func(e Event) {
				if e.Kind != EventAbandoned {
					return
				}
				<-made
				if again++; again == 1 {
					if err := push.Connect(c.endpoint); err != nil {
						t.Error(err)
					}
				}
				events <- e
			}
			push = open(t, NewPush, c.o)
			close(made)
			must(t, push.Connect(c.endpoint))
			for range 2 {
				e := <-events
				if e.Endpoint != c.endpoint || e.Err == nil || c.err != nil && !errors.Is(e.Err, c.err) {
					t.Errorf("%+v", e)
				}
				if number, _ := e.Code(); number != 0 {
					t.Errorf("libzmq has no such event, but %d is its number", number)
				}
			}
			if all := push.Endpoints(); len(all) != 0 {
				t.Errorf("%+v", all)
			}
		})
	}
	// Disconnect and Close are not reported.
	seen := newEvents()
	push := open(t, NewPush, Options{Monitor: seen.Tell})
	must(t, push.Connect(refusing))
	must(t, push.Disconnect(refusing))
	pull := bind(t, NewPull, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	must(t, push.WaitPeers(ctx, 1))
	must(t, push.Connect(refusing))
	must(t, push.Close())
	if n := seen.Count(EventAbandoned); n != 0 {
		t.Errorf("%d reports", n)
	}
}
