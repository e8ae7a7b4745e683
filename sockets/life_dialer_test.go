package sockets

import (
	"errors"
	"testing"
	"time"

	"clustermap/zmtp"
)

// TestRefusedDialerRetries: a peer that breaks the protocol or refuses the
// socket is dialled again, after the longest interval, and found once it is well.
// Messages queued meanwhile arrive.
func TestRefusedDialerRetries(t *testing.T) {
	t.Parallel()
	const most = 50 * time.Millisecond
	for name, c := range map[string]struct {
		says [][]byte
		want error
		kind EventKind
	}{
		"HTTP":                {[][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")}, zmtp.ErrVersion, EventHandshakeFailed},
		"another mechanism":   {[][]byte{zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"})}, zmtp.ErrMechanism, EventHandshakeFailed},
		"another socket type": {[][]byte{greeting(1), ready("PUB", nil)}, zmtp.ErrIncompatible, EventHandshakeFailed},
		"ERROR":               {[][]byte{greeting(1), zmtp.AppendError(nil, "go away")}, zmtp.ErrRefused, EventHandshakeFailed},
		"ERROR later":         {[][]byte{greeting(1), ready("ROUTER", nil), zmtp.AppendError(nil, "go away")}, zmtp.ErrRefused, EventDisconnected},
		"garbage later":       {[][]byte{greeting(1), ready("ROUTER", nil), {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}}, zmtp.ErrMalformed, EventDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint, accept := listenRaw(t)
			seen := newEvents()
			dealer := open(t, NewDealer, Options{ReconnectInterval: time.Millisecond, ReconnectIntervalMax: most, Monitor: seen.Tell})
			must(t, dealer.Connect(endpoint))
			for range 3 { // one refusal is no exception, nor are several
				r := accept()
				r.Send(c.says...)
				r.Ended()
				if e := seen.Await(t, c.kind); !errors.Is(e.Err, c.want) {
					t.Errorf("%v, want %v", e.Err, c.want)
				}
				if e := seen.Await(t, EventConnectRetried); e.Retry != most || !errors.Is(e.Err, c.want) || e.Endpoint != endpoint {
					t.Errorf("%+v, want a wait of %v and %v", e, most, c.want)
				}
			}
			says(t, dealer, "now")
			if m := accept().Greet("ROUTER", nil).Message(); string(m[0]) != "now" {
				t.Errorf("%q", m)
			}
		})
	}
}

// TestRefusedDialerWaitsByDefault: without ReconnectIntervalMax the wait after a refusal
// is long, but not for ever, and Disconnect and Close do not wait for it.
func TestRefusedDialerWaitsByDefault(t *testing.T) {
	t.Parallel()
	for _, disconnects := range []bool{false, true} {
		endpoint, accept := listenRaw(t)
		seen := newEvents()
		dealer, err := NewDealer(Options{Monitor: seen.Tell})
		must(t, err)
		must(t, dealer.Connect(endpoint))
		accept().Send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		if e := seen.Await(t, EventConnectRetried); e.Retry <= DefaultReconnectInterval || e.Retry > DefaultReconnectIntervalMax || e.Err == nil {
			t.Errorf("%+v", e)
		}
		if disconnects {
			must(t, dealer.Disconnect(endpoint))
		}
		within(t, "Close", func() { must(t, dealer.Close()) })
	}
}
