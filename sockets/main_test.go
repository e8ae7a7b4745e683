package sockets

import (
	"context"
	"io"
	"testing"

	"clustermap/internal/sockettest"
	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

const (
	hang     = testenv.Hang
	anyPort  = testenv.AnyPort
	portable = testenv.Portable
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
	within      = testenv.Within
	newLender   = testenv.NewLender

	freePort     = sockettest.FreePort
	sourcePort   = sockettest.SourcePort
	hasIPv6      = sockettest.HasIPv6
	socketDir    = sockettest.SocketDir
	socketPath   = sockettest.SocketPath
	abstractName = sockettest.AbstractName
	exists       = sockettest.Exists

	newRaw    = sockettest.NewPeer
	dialRaw   = sockettest.Dial
	attached  = sockettest.Attached
	listenRaw = sockettest.Listen
	greeting  = sockettest.Greeting
	ready     = sockettest.Ready
	wire      = sockettest.Wire

	says     = sockettest.Says
	wants    = sockettest.Wants[Message]
	wantRecv = sockettest.WantRecv[Message]
	drained  = sockettest.Drained[Message]
	fill     = sockettest.Fill
	texts    = sockettest.Texts[Message]
	show     = sockettest.Show
	echo     = sockettest.Echo[Message]
	running  = sockettest.Running
	plug     = sockettest.Plug
)

type (
	raw    = sockettest.Peer
	events = sockettest.Events[Event, EventKind]
)

func newEvents() *events { return sockettest.NewEvents(func(e Event) EventKind { return e.Kind }) }

func TestMain(m *testing.M) {
	testenv.Names()
	goleak.VerifyTestMain(m)
}

// open makes a socket that is closed at the end of the test.
func open[S io.Closer](t testing.TB, make func(Options) (S, error), o Options) S {
	t.Helper()
	return sockettest.Open(t, make, o)
}

// bind makes a socket that is bound to a port of its own.
func bind[S interface {
	io.Closer
	Bind(context.Context, string) error
}](t testing.TB, make func(Options) (S, error), o Options) S {
	t.Helper()
	return sockettest.Bind(t, make, o)
}

// dialled makes a socket that is connected to an endpoint.
func dialled[S interface {
	io.Closer
	Connect(string) error
}](t testing.TB, make func(Options) (S, error), o Options, endpoint string) S {
	t.Helper()
	return sockettest.Connect(t, make, o, endpoint)
}

// meanwhile lets another client connect to another server, and be served. So much time
// passes for what must not happen, however loaded the machine is.
func meanwhile(t testing.TB) {
	t.Helper()
	rep := bind(t, NewRep, Options{})
	req := dialled(t, NewReq, Options{}, rep.LastEndpoint())
	ctx := testContext(t)
	must(t, req.Send(ctx, []byte("question")))
	m, err := rep.Recv(ctx)
	must(t, err)
	must(t, rep.Send(ctx, m...))
	_, err = req.Recv(ctx)
	must(t, err)
}
