package interop

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"clustermap/internal/interop"
	"clustermap/internal/sockettest"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// The parts that all tests need are in this file.

const (
	anyPort = testenv.AnyPort
	hang    = testenv.Hang
)

var (
	timeLimit = testenv.Context
	check     = testenv.Must

	// Programs can be bound to an endpoint one after the other: no other process gets the
	// port meanwhile.
	ownPort = sockettest.FreePort
)

// socket is the interface of all socket types.
type socket interface {
	Bind(ctx context.Context, endpoint string) error
	Connect(endpoint string) error
	LastEndpoint() string
	Peers() []sockets.PeerStats
	Close() error
}

// open makes a socket that is closed when the test ends. Messages still queued
// then are dropped.
func open[S socket](t *testing.T, create func(sockets.Options) (S, error), o sockets.Options) S {
	t.Helper()
	o.Linger = sockets.LingerNone
	s, err := create(o)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// python starts libzmq's end without limits on its queues, because a drop there would
// look like a loss here.
func python(t *testing.T, kind string, args ...string) *interop.Process {
	t.Helper()
	return interop.Python(t, "zmq_peer.py", append([]string{"--type", kind, "--hwm", "0"}, args...)...)
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// side is the side that binds.
type side string

const (
	weBind   side = "we bind"
	theyBind side = "they bind"
)

// linkTo starts libzmq's end and connects it with s, either way round.
func linkTo(t *testing.T, s socket, who side, kind string, args ...string) *interop.Process {
	t.Helper()
	if who == weBind {
		check(t, s.Bind(timeLimit(t), ownPort(t)))
		return python(t, kind, append(args, "--connect", s.LastEndpoint())...)
	}
	p := python(t, kind, append(args, "--bind", ownPort(t))...)
	check(t, s.Connect(p.Endpoint))
	return p
}

// shape is a message by the sizes of its frames.
type shape []int

func (s shape) String() string {
	if len(s) > 4 {
		return fmt.Sprintf("%v...x%d", []int(s[:4]), len(s))
	}
	return fmt.Sprint([]int(s))
}

// count is how many messages of the shape a test sends: two, so that one follows
// another, but one of the large ones, which cost the most time.
func (s shape) count() int {
	if s[0] >= 16<<20 {
		return 1
	}
	return 2
}

func repeat(size, frames int) shape {
	s := make(shape, frames)
	for i := range s {
		s[i] = size
	}
	return s
}

// shapes has every size on each side of a change of form, in few and in many
// frames. The large ones go by reference here and through several reads there.
func shapes(large bool) []shape {
	all := []shape{{0, 255, 256, 65536, 1, 0}, {65536, 0, 0, 256}}
	for _, size := range []int{0, 255, 256, 65536} {
		for _, frames := range []int{1, 2, 100} {
			all = append(all, repeat(size, frames))
		}
	}
	if large {
		all = append(all, repeat(16<<20, 1), repeat(16<<20, 3))
	}
	return all
}

// pythonSends has libzmq send count messages of a shape, each behind head.
func pythonSends(p *interop.Process, head [][]byte, seed int, s shape, count int) *interop.Pending {
	return p.Start(interop.Op{"op": "send", "head": head, "seed": seed, "sizes": []int(s), "count": count})
}

// pythonSays has libzmq send one message.
func pythonSays(p *interop.Process, frames ...string) {
	message := make([][]byte, len(frames))
	for i, f := range frames {
		message[i] = []byte(f)
	}
	p.Call(interop.Op{"op": "send", "messages": [][][]byte{message}}, nil)
}

func pythonReceives(p *interop.Process, n int) [][]interop.Frame {
	var got interop.Received
	p.Call(interop.Op{"op": "recv", "n": n}, &got)
	return got.Messages
}

// wantDescribed compares the frames that libzmq received with the message it was sent.
func wantDescribed(t *testing.T, got []interop.Frame, want [][]byte) {
	t.Helper()
	if described := interop.DescribeAll(want); !reflect.DeepEqual(got, described) {
		t.Fatalf("libzmq received %s, want %s", brief(got), brief(described))
	}
}

func brief(frames []interop.Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d frames:", len(frames))
	for i, f := range frames {
		if i == 8 {
			b.WriteString(" ...")
			break
		}
		fmt.Fprintf(&b, " %d bytes %.8s", f.Size, f.SHA256)
	}
	return b.String()
}

// wantFrames compares the message received here with the one that libzmq sent.
func wantFrames(t *testing.T, got sockets.Message, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("received %d frames, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("frame %d has %d bytes that are not the %d sent", i, len(got[i]), len(want[i]))
		}
	}
}

// counted is the answer to "count".
type counted struct {
	Count       int
	Ordered     bool
	First, Last int
}

func newEvents() *sockettest.Events[sockets.Event, sockets.EventKind] {
	return sockettest.NewEvents(func(e sockets.Event) sockets.EventKind { return e.Kind })
}
