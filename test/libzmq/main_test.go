package libzmq

import (
	"context"
	"io"
	"testing"
	"time"

	"clustermap/internal/sockettest"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"

	"go.uber.org/goleak"
)

// The parts that all tests need are in this file, and in package sockettest.

const (
	hang    = testenv.Hang
	anyPort = testenv.AnyPort
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
	within      = testenv.Within

	freePort   = sockettest.FreePort
	sourcePort = sockettest.SourcePort
	hasIPv6    = sockettest.HasIPv6

	dialRaw   = sockettest.Dial
	attached  = sockettest.Attached
	listenRaw = sockettest.Listen
	greeting  = sockettest.Greeting
	ready     = sockettest.Ready
	wire      = sockettest.Wire

	says       = sockettest.Says
	wants      = sockettest.Wants[sockets.Message]
	wantRecv   = sockettest.WantRecv[sockets.Message]
	wantQueued = sockettest.WantQueued[sockets.Message]
	drained    = sockettest.Drained[sockets.Message]
	fill       = sockettest.Fill
	texts      = sockettest.Texts[sockets.Message]
	echo       = sockettest.Echo[sockets.Message]
	plug       = sockettest.Plug
)

type (
	raw    = sockettest.Peer
	events = sockettest.Events[sockets.Event, sockets.EventKind]
)

func newEvents() *events {
	return sockettest.NewEvents(func(e sockets.Event) sockets.EventKind { return e.Kind })
}

func TestMain(m *testing.M) {
	testenv.Names()
	goleak.VerifyTestMain(m)
}

// open makes a socket that is closed at the end of the test.
func open[S io.Closer](t testing.TB, make func(sockets.Options) (S, error), o sockets.Options) S {
	t.Helper()
	return sockettest.Open(t, make, o)
}

// bind makes a socket that is bound to a port of its own.
func bind[S interface {
	io.Closer
	Bind(context.Context, string) error
}](t testing.TB, make func(sockets.Options) (S, error), o sockets.Options) S {
	t.Helper()
	return sockettest.Bind(t, make, o)
}

// dialled makes a socket that is connected to an endpoint.
func dialled[S interface {
	io.Closer
	Connect(string) error
}](t testing.TB, make func(sockets.Options) (S, error), o sockets.Options, endpoint string) S {
	t.Helper()
	return sockettest.Connect(t, make, o, endpoint)
}

func newProxy(t *testing.T, frontend, backend sockets.Socket, o sockets.ProxyOptions) *sockets.SteerableProxy {
	t.Helper()
	p, err := sockets.NewSteerableProxy(frontend, backend, o)
	must(t, err)
	return p
}

// zapHandler answers every request with the result of answer.
func zapHandler(t *testing.T, names *sockets.Inproc, answer func(request []string) []string) {
	t.Helper()
	sockettest.ServeZAP(t, open(t, sockets.NewRouter, sockets.Options{Inproc: names}), answer)
}

// quick returns options with which a socket reconnects quickly.
func quick(o sockets.Options) sockets.Options {
	o.ReconnectInterval = time.Millisecond
	return o
}

func inprocOptions() sockets.Options { return sockets.Options{Inproc: new(sockets.Inproc)} }

// pending is the number of messages that wait to be received.
func pending(peers []sockets.PeerStats) (n int) {
	for _, p := range peers {
		n += p.PendingMessages
	}
	return n
}

// pair is the two ends of a mechanism.
type pair struct{ server, client sockets.Security }

// mechanisms returns the pairs of each mechanism, for a ZAP handler to authenticate.
func mechanisms() map[string]pair {
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	return map[string]pair{
		"NULL": {},
		"PLAIN": {
			sockets.Security{PlainServer: true},
			sockets.Security{PlainUsername: "user", PlainPassword: "secret"},
		},
		"CURVE": {
			sockets.Security{CurveServer: true, CurveSecretKey: server.Secret},
			sockets.Security{CurveSecretKey: client.Secret, CurveServerKey: server.Public},
		},
	}
}
