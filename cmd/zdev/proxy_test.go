package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/internal/interop"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

var testContext = testenv.Context

// connected returns a socket that is connected to an endpoint. The test closes it.
func connected[S sockets.Socket](t testing.TB, create func(sockets.Options) (S, error), o sockets.Options, endpoint string) S {
	t.Helper()
	s, err := create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Connect(endpoint); err != nil {
		t.Fatal(err)
	}
	return s
}

// endsWell ends a device with SIGTERM.
func endsWell(t testing.TB, p *commandtest.Process) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != command.ExitDone {
		t.Errorf("%s: exit code %d: %s", p.Name, code, p.Stderr.String())
	}
}

func TestProxyPubSub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := zdev.Start(t, "proxy", "--kind", "pubsub", "--frontend", "tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:0")
	at := p.Ready()
	if len(at) != 2 || strings.HasSuffix(at[0], "*") || strings.HasSuffix(at[1], ":0") {
		t.Fatalf("ready at %q", at)
	}
	sub := connected(t, sockets.NewSub, sockets.Options{}, at[1])
	if err := sub.Subscribe("a"); err != nil {
		t.Fatal(err)
	}
	pub := connected(t, sockets.NewPub, sockets.Options{}, at[0])
	if err := pub.WaitSubscribers(ctx, "a", 1); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"b0", "a1", "a2"} {
		if err := pub.Send(ctx, []byte(text), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"a1", "a2"} {
		if m, err := sub.Recv(ctx); err != nil || len(m) != 2 || string(m[0]) != want {
			t.Fatalf("%q, %v; want %s", m, err, want)
		}
	}
	endsWell(t, p)
	if n := strings.Count(p.Stderr.String(), "\n"); n != 1 {
		t.Errorf("%d lines on standard error: %s", n, p.Stderr.String())
	}
}

func TestProxyReqRep(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	// The backend connects to a service that is there.
	service, err := sockets.NewRep(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Close() })
	if err := service.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	p := zdev.Start(t, "proxy", "--kind", "reqrep", "--frontend", "tcp://127.0.0.1:*", "--backend", "connect:"+service.LastEndpoint())
	at := p.Ready()
	if len(at) != 2 || at[1] != service.LastEndpoint() {
		t.Fatalf("ready at %q", at)
	}
	client := connected(t, sockets.NewReq, sockets.Options{}, at[0])
	for range 3 {
		if err := client.Send(ctx, []byte("ping")); err != nil {
			t.Fatal(err)
		}
		m, err := service.Recv(ctx)
		if err != nil || string(m[0]) != "ping" {
			t.Fatalf("%q, %v", m, err)
		}
		if err := service.Send(ctx, []byte("pong")); err != nil {
			t.Fatal(err)
		}
		if m, err = client.Recv(ctx); err != nil || string(m[0]) != "pong" {
			t.Fatalf("%q, %v", m, err)
		}
	}
	endsWell(t, p)
}

func TestProxyPipeline(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	// Two endpoints on one side.
	p := zdev.Start(t, "proxy", "--kind", "pipeline", "--frontend", "tcp://127.0.0.1:*", "--frontend", "ipc://"+filepath.Join(dir, "in"), "--backend", "tcp://127.0.0.1:*")
	at := p.Ready()
	if len(at) != 3 {
		t.Fatalf("ready at %q", at)
	}
	worker := connected(t, sockets.NewPull, sockets.Options{}, at[2])
	for _, endpoint := range at[:2] {
		source := connected(t, sockets.NewPush, sockets.Options{}, endpoint)
		if err := source.Send(ctx, []byte(endpoint)); err != nil {
			t.Fatal(err)
		}
		if m, err := worker.Recv(ctx); err != nil || string(m[0]) != endpoint {
			t.Fatalf("%q, %v", m, err)
		}
	}
	endsWell(t, p)
}

// Programs that use libzmq communicate through the proxy.
func TestProxyInterop(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	p := zdev.Start(t, "proxy", "--kind", "reqrep", "--frontend", "tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:*")
	at := p.Ready()
	client := interop.Python(t, "zmq_peer.py", "--type", "REQ", "--connect", at[0])
	service := interop.Python(t, "zmq_peer.py", "--type", "REP", "--connect", at[1])
	for i := range 3 {
		client.Call(interop.Op{"op": "send", "messages": [][][]byte{{[]byte("question")}}}, nil)
		var got interop.Received
		service.Call(interop.Op{"op": "recv", "n": 1}, &got)
		if len(got.Messages) != 1 || string(got.Messages[0][0].Bytes) != "question" {
			t.Fatalf("request %d: %v", i, got)
		}
		service.Call(interop.Op{"op": "send", "messages": [][][]byte{{[]byte("answer")}}}, nil)
		client.Call(interop.Op{"op": "recv", "n": 1}, &got)
		if len(got.Messages) != 1 || string(got.Messages[0][0].Bytes) != "answer" {
			t.Fatalf("reply %d: %v", i, got)
		}
	}
	endsWell(t, p)
}

// With CURVE the proxy accepts only the listed keys.
func TestProxyCurve(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	file := filepath.Join(t.TempDir(), "key")
	public, err := zmtp.ParsePublicKey(strings.TrimSpace(zdev.Must(t, "keygen", "--out", file)))
	if err != nil {
		t.Fatal(err)
	}
	known, unknown := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	p := zdev.Start(t, "proxy", "--kind", "pipeline", "--frontend", "tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:*",
		"--curve-key", file, "--curve-allow", known.Public.String())
	at := p.Ready()
	if !strings.Contains(p.Stderr.String(), "--curve-server-key '"+public.String()+"'") {
		t.Errorf("the key is not in %q", p.Stderr.String())
	}
	options := func(pair zmtp.KeyPair) (sockets.Options, chan sockets.Event) {
		events := make(chan sockets.Event, 1000)
		return sockets.Options{
			Security: sockets.Security{CurveSecretKey: pair.Secret, CurveServerKey: public},
			Monitor: func(e sockets.Event) {
				select {
				case events <- e:
				default:
				}
			},
		}, events
	}
	o, events := options(unknown)
	stranger := connected(t, sockets.NewPush, o, at[0])
	for refused := false; !refused; {
		select {
		case e := <-events:
			refused = errors.Is(e.Err, zmtp.ErrRefused)
		case <-ctx.Done():
			t.Fatal("the stranger was not refused")
		}
	}
	stranger.Close()
	o, _ = options(known)
	worker := connected(t, sockets.NewPull, o, at[1])
	source := connected(t, sockets.NewPush, o, at[0])
	if err := source.Send(ctx, []byte("work")); err != nil {
		t.Fatal(err)
	}
	if m, err := worker.Recv(ctx); err != nil || string(m[0]) != "work" {
		t.Fatalf("%q, %v", m, err)
	}
	endsWell(t, p)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"", "no command given"},
		{"frobnicate", "frobnicate"},
		{"completion", "name a shell"},
		{"help foo", "foo"},
		{"proxy x", "proxy takes no arguments"},
		{"proxy --kind pubsub", "give --frontend"},
		{"proxy --kind pubsub --frontend tcp://127.0.0.1:*", "give --backend"},
		{"proxy --frontend tcp://127.0.0.1:* --backend tcp://127.0.0.1:*", `--kind "": give pubsub, reqrep, pipeline`},
		{"proxy --kind router --frontend tcp://127.0.0.1:* --backend tcp://127.0.0.1:*", `--kind "router": give pubsub, reqrep, pipeline`},
		{"proxy --kind pubsub --frontend nonsense --backend tcp://127.0.0.1:*", `--frontend "nonsense"`},
		{"proxy --kind pubsub --frontend connect:tcp://*:5559 --backend tcp://127.0.0.1:*", "--frontend"},
		{"proxy --kind pubsub --frontend tcp://127.0.0.1:* --backend tcp://127.0.0.1:* --curve-allow any", "--curve-key"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			o := zdev.Try(t, strings.Fields(c.args)...)
			o.Expect(t, command.ExitUsage, c.want)
			if o.Out != "" || !strings.Contains(o.Stderr, "--help") {
				t.Errorf("stdout %q, stderr %q", o.Out, o.Stderr)
			}
		})
	}
}

func TestEndpointInUse(t *testing.T) {
	t.Parallel()
	s, err := sockets.NewPull(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Bind(testContext(t), "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	o := zdev.Try(t, "proxy", "--kind", "pubsub", "--frontend", s.LastEndpoint(), "--backend", "tcp://127.0.0.1:*")
	o.Expect(t, command.ExitRefused, "--frontend "+s.LastEndpoint()+": the address is in use")
}

// Every command has a help text with examples, and completion knows it.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := zdev.Must(t, "--help")
	for _, c := range newRoot().Commands() {
		if !strings.Contains(root, "\n  "+c.Name()+" ") {
			t.Errorf("zdev --help does not list %s", c.Name())
		}
		if c.Example == "" || c.Long == "" {
			t.Errorf("%s has no example or no text", c.Name())
		}
		text := zdev.Must(t, c.Name(), "--help")
		if !strings.Contains(text, "Usage:\n  zdev "+c.Name()) || !strings.Contains(text, "Examples:") {
			t.Errorf("zdev %s --help: %s", c.Name(), text)
		}
	}
	if !strings.Contains(zdev.Must(t, "--version"), "zdev version") {
		t.Error("zdev --version")
	}
	for args, want := range map[string]string{"pro": "proxy\t", "proxy --kind ": "reqrep"} {
		if out := zdev.Must(t, append([]string{"__complete"}, strings.Split(args, " ")...)...); !strings.Contains(out, want) {
			t.Errorf("completion of %q: %q, want %q in it", args, out, want)
		}
	}
}

// Output that cannot be written is an error.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("this system has no device that is always full: %v", err)
	}
	defer full.Close()
	cmd := zdev.Command(t, "--help")
	cmd.Stdout = full
	zdev.TryCommand(t, cmd).Expect(t, command.ExitRefused, "no space")
}
