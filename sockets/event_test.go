package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/zmtp"
)

// TestEventCode: every kind has libzmq's number, and the values that a program
// can use.
func TestEventCode(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	failed := func(err error) Event {
		return Event{Kind: EventHandshakeFailed, Err: &PeerError{Remote: "x", Err: err}}
	}
	for _, c := range []struct {
		event   Event
		number  uint16
		value   uint32
		failure Failure
	}{
		{Event{Kind: EventConnected}, 0x0001, 0, FailureNone},
		{Event{Kind: EventConnectDelayed}, 0x0002, uint32(syscall.EINPROGRESS), FailureNone},
		{Event{Kind: EventConnectRetried, Retry: 1500 * time.Millisecond}, 0x0004, 1500, FailureNone},
		{Event{Kind: EventListening}, 0x0008, 0, FailureNone},
		{Event{Kind: EventBindFailed, Err: refused}, 0x0010, uint32(syscall.EADDRINUSE), FailureNone},
		{Event{Kind: EventAccepted}, 0x0020, 0, FailureNone},
		{Event{Kind: EventAcceptFailed, Err: syscall.EMFILE}, 0x0040, uint32(syscall.EMFILE), FailureNone},
		{Event{Kind: EventListenerClosed}, 0x0080, 0, FailureNone},
		{Event{Kind: EventConnectFailed, Err: refused}, 0x0080, 0, FailureNone},
		{Event{Kind: EventCloseFailed, Err: errors.New("other")}, 0x0100, 0, FailureNone},
		{Event{Kind: EventDisconnected, Err: io.EOF}, 0x0200, 0, FailureNone},
		{Event{Kind: EventMonitorStopped}, 0x0400, 0, FailureNone},
		{failed(io.EOF), 0x0800, uint32(syscall.EPIPE), FailureNoDetail},
		{failed(syscall.ECONNRESET), 0x0800, uint32(syscall.ECONNRESET), FailureNoDetail},
		{failed(ErrHandshakeTimeout), 0x0800, uint32(syscall.ETIMEDOUT), FailureNoDetail},
		{failed(context.DeadlineExceeded), 0x0800, uint32(syscall.ETIMEDOUT), FailureNoDetail},
		{Event{Kind: EventHandshakeSucceeded}, 0x1000, 0, FailureNone},
		{failed(&zmtp.ProtocolError{Err: zmtp.ErrMechanism}), 0x2000, zmtp.CodeMechanismMismatch, FailureProtocol},
		{failed(&zmtp.ProtocolError{Err: zmtp.ErrRefused, Reason: "go away"}), 0x2000, zmtp.CodeUnspecified, FailureProtocol},
		{failed(&zmtp.ProtocolError{Err: zmtp.ErrRefused, Reason: "400"}), 0x4000, 400, FailureAuth},
		{failed(&zmtp.ProtocolError{Err: zmtp.ErrDenied, Reason: "500"}), 0x4000, 500, FailureAuth},
		{Event{Kind: EventPeerIgnored}, 0, 0, FailureNone},
		{Event{Kind: 99}, 0, 0, FailureNone},
	} {
		number, value := c.event.Code()
		if number != c.number || value != c.value || c.event.Failure() != c.failure {
			t.Errorf("%v %v: %#x %d %v, want %#x %d %v", c.event.Kind, c.event.Err, number, value, c.event.Failure(), c.number, c.value, c.failure)
		}
	}
	for f, want := range map[Failure]string{FailureNone: "none", FailureNoDetail: "no detail", FailureProtocol: "protocol", FailureAuth: "auth", 9: "Failure(9)"} {
		if f.String() != want {
			t.Errorf("%q", f)
		}
	}
}

// TestMonitorBindFailed: the monitor receives the error that Bind returns.
func TestMonitorBindFailed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	endpoint := router.LastEndpoint()
	err := router.Bind(ctx, endpoint)
	e := seen.Await(t, EventBindFailed)
	if err == nil || !errors.Is(e.Err, err) || e.Endpoint != endpoint {
		t.Errorf("%+v, Bind returned %v", e, err)
	}
	if number, value := e.Code(); number != 0x10 || runtime.GOOS != "windows" && value != uint32(syscall.EADDRINUSE) {
		t.Errorf("%#x %d", number, value)
	}
	// A fault in the text is reported to the caller only.
	if router.Bind(ctx, "tcp://nonsense") == nil || seen.Count(EventBindFailed) != 1 {
		t.Errorf("%d events", seen.Count(EventBindFailed))
	}
}

// TestMonitorCloseFailed: the directory of a wildcard endpoint cannot be removed if it
// has other files.
func TestMonitorCloseFailed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("ipc has other errors on this system")
	}
	seen := newEvents()
	router := open(t, NewRouter, Options{Monitor: seen.Tell})
	must(t, router.Bind(testContext(t), "ipc://*"))
	endpoint := router.LastEndpoint()
	dir := filepath.Dir(strings.TrimPrefix(endpoint, "ipc://"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
	must(t, router.Unbind(endpoint))
	e := seen.Await(t, EventCloseFailed)
	if _, value := e.Code(); e.Endpoint != endpoint || e.Err == nil || value == 0 {
		t.Errorf("%+v", e)
	}
	seen.Await(t, EventListenerClosed)
}

// TestMonitorRetries: Event.Retry is the actual wait.
func TestMonitorRetries(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	dealer := open(t, NewDealer, Options{Monitor: seen.Tell, Linger: LingerNone, ReconnectInterval: 2 * time.Millisecond, ReconnectIntervalMax: 5 * time.Millisecond})
	endpoint := freePort(t)
	must(t, dealer.Connect(endpoint))
	for _, want := range []time.Duration{2, 4, 5, 5} {
		d, f, r := seen.Await(t, EventConnectDelayed), seen.Await(t, EventConnectFailed), seen.Await(t, EventConnectRetried)
		if d.Endpoint != endpoint || d.Err != nil || f.Endpoint != endpoint || f.Err == nil || r.Retry != want*time.Millisecond {
			t.Errorf("%+v %+v %+v, want a wait of %v ms", d, f, r, want)
		}
	}
}

// TestMonitorFailures: each kind of failed handshake.
func TestMonitorFailures(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	patient := bind(t, NewRouter, Options{Monitor: seen.Tell})
	hasty := bind(t, NewRouter, Options{Monitor: seen.Tell, HandshakeTimeout: time.Millisecond})
	for _, c := range []struct {
		name string
		says []byte
		gone bool
		want Failure
		code uint32
	}{
		{"gone", greeting(1), true, FailureNoDetail, uint32(syscall.EPIPE)},
		{"silent", nil, false, FailureNoDetail, uint32(syscall.ETIMEDOUT)},
		{"other mechanism", zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Mechanism: "PLAIN"}), false, FailureProtocol, zmtp.CodeMechanismMismatch},
		{"wrong type", append(greeting(1), ready("PULL", nil)...), false, FailureProtocol, zmtp.CodeInvalidMetadata},
		{"denied by the peer", append(greeting(1), zmtp.AppendError(nil, "400")...), false, FailureAuth, 400},
	} {
		router := patient
		if c.name == "silent" {
			router = hasty
		}
		r := dialRaw(t, router.LastEndpoint())
		r.Send(c.says)
		if c.gone {
			must(t, r.Conn.(*net.TCPConn).CloseWrite())
		}
		e := seen.Await(t, EventHandshakeFailed)
		if _, value := e.Code(); e.Failure() != c.want || value != c.code {
			t.Errorf("%s: %+v: %v %#x", c.name, e, e.Failure(), value)
		}
	}
}

// TestMonitorStopped: it is the last event, even if other events are in progress.
func TestMonitorStopped(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, Linger: LingerNone})
	dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	dialRaw(t, router.LastEndpoint()) // in its handshake
	must(t, router.Connect(freePort(t)))
	seen.Await(t, EventHandshakeSucceeded)
	must(t, router.Close())
	must(t, router.Close())
	if kinds := seen.Kinds(); kinds[len(kinds)-1] != EventMonitorStopped || seen.Count(EventMonitorStopped) != 1 {
		t.Errorf("%v", kinds)
	}
}

// TestMonitorChan: events arrive in order, are counted when dropped, and the channel is
// closed with the socket.
func TestMonitorChan(t *testing.T) {
	t.Parallel()
	m := NewMonitorChan(64)
	router := bind(t, NewRouter, Options{Monitor: m.Tell, Linger: LingerNone})
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	r.Sync()
	must(t, router.Close())
	var kinds []EventKind
	for e := range m.Events() {
		kinds = append(kinds, e.Kind)
	}
	got := fmt.Sprint(kinds)
	if !strings.HasPrefix(got, "[listening accepted handshake succeeded ") || !strings.HasSuffix(got, " monitor stopped]") || len(kinds) != 5 {
		t.Errorf("%v", got)
	}
	if m.Dropped() != 0 {
		t.Errorf("%d dropped", m.Dropped())
	}
	// An event that comes too late has no room either.
	m.Tell(Event{Kind: EventBindFailed})
	m.Tell(Event{Kind: EventMonitorStopped})
	if m.Dropped() != 1 {
		t.Errorf("%d dropped", m.Dropped())
	}
}

// TestMonitorChanFull: a full channel delays nothing.
func TestMonitorChanFull(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	m := NewMonitorChan(0)
	router := bind(t, NewRouter, Options{Monitor: m.Tell, Linger: LingerNone})
	works := honest(t, router, "honest")
	works()
	for range 10 {
		dialRaw(t, router.LastEndpoint()).Conn.Close()
	}
	works()
	eventually(t, "events are dropped", func() bool { return m.Dropped() >= 5 })
	must(t, ctx.Err())
	must(t, router.Close())
	if e, open := <-m.Events(); !open || e.Kind != EventListening {
		t.Errorf("%+v", e)
	}
	if _, open := <-m.Events(); open {
		t.Error("there was room for one event")
	}
}
