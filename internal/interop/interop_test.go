package interop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"clustermap/internal/interop"
	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script writes a program for a test.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersion(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	if v := interop.Version(); strings.Count(v, ".") != 2 {
		t.Errorf("Version() = %q, want three numbers", v)
	}
}

const echoProgram = `
import sys, zmq
from lines import Commands, Failure, Later, event

go = []

def fail():
    raise Failure("as asked")

def wait():
    return Later(lambda: {"went": True} if go else None, 60)

c = Commands({"say": lambda **what: what, "fail": fail, "wait": wait, "go": lambda: go.append(1)})
print("a line for the log", file=sys.stderr)
event("ready")
event("other", n=1)
event("more", n=2)
event("more", n=3)
while True:
    zmq.select([c.fd], [], [])
    c.run()
    c.settle()
`

func TestCommands(t *testing.T) {
	t.Parallel()
	p := interop.Python(t, script(t, echoProgram))

	var said struct {
		Bytes  []byte
		Number int
	}
	p.Call(interop.Op{"op": "say", "bytes": []byte("\x00\xff\n"), "number": 7}, &said)
	if !bytes.Equal(said.Bytes, []byte("\x00\xff\n")) || said.Number != 7 {
		t.Errorf("say came back as %+v", said)
	}

	// A late answer does not delay the next ones.
	wait := p.Start(interop.Op{"op": "wait"})
	p.Call(interop.Op{"op": "say"}, nil)
	p.Call(interop.Op{"op": "go"}, nil)
	var went struct{ Went bool }
	wait.Done(&went)
	if !went.Went {
		t.Error("the late answer is empty")
	}

	for op, want := range map[string]string{"fail": "as asked", "nothing": "no such op"} {
		err := p.Start(interop.Op{"op": op}).Wait(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", op, err, want)
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	p := interop.Python(t, script(t, echoProgram))
	var n struct{ N int }
	for _, want := range []struct {
		name string
		n    int
	}{{"more", 2}, {"other", 1}, {"more", 3}} {
		p.Event(want.name, &n)
		if n.N != want.n {
			t.Errorf("event %s with n %d, want %d", want.name, n.N, want.n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Next(ctx, "more"); !errors.Is(err, context.Canceled) {
		t.Errorf("Next on an empty queue: %v, want context.Canceled", err)
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	p := interop.Python(t, script(t, echoProgram))
	wait := p.Start(interop.Op{"op": "wait"})
	p.Stop() // a stopped program can be killed, too
	p.Kill()
	p.Kill()
	select {
	case <-p.Exited():
	default:
		t.Error("Kill returned while the program was still there")
	}
	if err := wait.Wait(t.Context(), nil); !errors.Is(err, interop.ErrExited) {
		t.Errorf("the pending command got %v, want ErrExited", err)
	}
	if err := p.Start(interop.Op{"op": "say"}).Wait(t.Context(), nil); !errors.Is(err, interop.ErrExited) {
		t.Errorf("a new command got %v, want ErrExited", err)
	}
	if _, err := p.Next(t.Context(), "none"); !errors.Is(err, interop.ErrExited) {
		t.Errorf("Next got %v, want ErrExited", err)
	}
}

// peer starts zmq_peer.py.
func peer(t *testing.T, kind string, args ...string) *interop.Process {
	t.Helper()
	return interop.Python(t, "zmq_peer.py", append([]string{"--type", kind}, args...)...)
}

func TestPeersExchange(t *testing.T) {
	t.Parallel()
	router := peer(t, "ROUTER", "--bind", testenv.AnyPort)
	dealer := peer(t, "DEALER", "--identity", "bWU=", "--connect", router.Endpoint)

	sizes := []int{0, 1, 255, 256, 65536}
	const seed, count = 7, 3
	dealer.Call(interop.Op{"op": "send", "messages": [][][]byte{{[]byte("first")}}, "seed": seed, "sizes": sizes, "count": count}, nil)
	var got interop.Received
	router.Call(interop.Op{"op": "recv", "n": 1 + count}, &got)
	want := [][]interop.Frame{interop.DescribeAll([][]byte{[]byte("me"), []byte("first")})}
	for i := range count {
		frames := append([][]byte{[]byte("me")}, interop.Frames(seed, i, sizes)...)
		want = append(want, interop.DescribeAll(frames))
	}
	if !reflect.DeepEqual(got.Messages, want) {
		t.Errorf("the ROUTER got\n%v, want\n%v", got.Messages, want)
	}

	echo := router.Start(interop.Op{"op": "echo", "n": 1})
	dealer.Call(interop.Op{"op": "send", "messages": [][][]byte{{[]byte("there"), nil}}}, nil)
	dealer.Call(interop.Op{"op": "recv"}, &got)
	echo.Done(nil)
	want = [][]interop.Frame{interop.DescribeAll([][]byte{[]byte("there"), nil})}
	if !reflect.DeepEqual(got.Messages, want) {
		t.Errorf("the echo is %v, want %v", got.Messages, want)
	}
}

func TestPeersPublish(t *testing.T) {
	t.Parallel()
	pub := peer(t, "XPUB", "--bind", testenv.AnyPort, "--hwm", "0")
	sub := peer(t, "SUB", "--connect", pub.Endpoint, "--subscribe", "YQ==", "--hwm", "0")
	var got interop.Received
	pub.Call(interop.Op{"op": "recv"}, &got)
	if data := got.Messages[0][0].Bytes; string(data) != "\x01a" {
		t.Fatalf("the publisher was told %q, want the subscription to a", data)
	}
	pub.Call(interop.Op{"op": "wait_event", "name": "HANDSHAKE_SUCCEEDED"}, nil)
	pub.Call(interop.Op{"op": "flood", "n": 10, "size": 100, "head": [][]byte{[]byte("b")}}, nil)
	pub.Call(interop.Op{"op": "flood", "n": 1000, "size": 100, "head": [][]byte{[]byte("ab")}, "first": 10}, nil)
	var counted struct {
		Count       int
		Ordered     bool
		First, Last int
	}
	sub.Call(interop.Op{"op": "count", "n": 1000}, &counted)
	if counted.Count != 1000 || !counted.Ordered || counted.First != 10 || counted.Last != 1009 {
		t.Errorf("counted %+v, want 1000 in order from 10 to 1009", counted)
	}
	sub.Call(interop.Op{"op": "unsubscribe", "topic": []byte("a")}, nil)
	pub.Call(interop.Op{"op": "recv"}, &got)
	if data := got.Messages[0][0].Bytes; string(data) != "\x00a" {
		t.Errorf("the publisher was told %q, want the end of the subscription to a", data)
	}
}

func at(p *interop.Process) string { return fmt.Sprintf("127.0.0.1:%d", p.Port) }
