package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// proxied runs a proxy until the test ends.
func proxied(t *testing.T, frontend, backend sockets.Socket, o sockets.ProxyOptions) (p *sockets.SteerableProxy, done <-chan error) {
	t.Helper()
	check(t, frontend.Bind(timeLimit(t), anyPort))
	check(t, backend.Bind(timeLimit(t), anyPort))
	p, err := sockets.NewSteerableProxy(frontend, backend, o)
	check(t, err)
	ctx, cancel := context.WithCancel(timeLimit(t))
	ended, result := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		err := p.Run(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the proxy ended with %v", err)
		}
		result <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return p, result
}

// Clients and workers of libzmq, with our queue in between.
func TestInteropProxyQueue(t *testing.T) {
	t.Parallel()
	front := open(t, sockets.NewRouter, sockets.Options{})
	back := open(t, sockets.NewDealer, sockets.Options{})
	proxied(t, front, back, sockets.ProxyOptions{})
	all := []shape{{0}, {1}, {255}, {256, 0, 3}, {65536, 1}, repeat(5, 50), {1 << 20}}
	const workers, clients = 2, 2
	for range workers {
		// More than any worker gets, so that none ends early.
		python(t, "REP", "--connect", back.LastEndpoint()).Start(interop.Op{"op": "echo", "n": 1000})
	}
	for c := range clients {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			p := python(t, "REQ", "--connect", front.LastEndpoint())
			for seed, s := range all {
				pythonSends(p, nil, seed, s, 1).Done(nil)
				if got, want := pythonReceives(p, 1)[0], interop.DescribeAll(interop.Frames(seed, 0, s)); !reflect.DeepEqual(got, want) {
					t.Fatalf("%v: libzmq received %s, want %s", s, brief(got), brief(want))
				}
			}
		})
	}
}

// libzmq subscribes and publishes, with our forwarder in between.
func TestInteropProxyForwarder(t *testing.T) {
	t.Parallel()
	front := open(t, sockets.NewXSub, sockets.Options{})
	back := open(t, sockets.NewXPub, sockets.Options{})
	p, _ := proxied(t, front, back, sockets.ProxyOptions{})
	pub := python(t, "XPUB", "--connect", front.LastEndpoint())
	sub := python(t, "SUB", "--connect", back.LastEndpoint(), "--subscribe", base64Of("a"))
	subscription := pythonReceives(pub, 1)[0]
	wantDescribed(t, subscription, [][]byte{[]byte("\x01a")})
	pythonSays(pub, "b", "not for it")
	pythonSays(pub, "a", "for it")
	got := pythonReceives(sub, 1)[0]
	wantDescribed(t, got, [][]byte{[]byte("a"), []byte("for it")})
	if s := p.Statistics(); s.BackendIn.Messages != 1 || s.FrontendIn.Messages != 1 {
		t.Errorf("statistics: %+v", s)
	}
}

// libzmq's program for steering libzmq's proxy steers ours.
func TestInteropProxyControl(t *testing.T) {
	t.Parallel()
	front := open(t, sockets.NewPull, sockets.Options{})
	back := open(t, sockets.NewPush, sockets.Options{})
	control := open(t, sockets.NewRep, sockets.Options{})
	check(t, control.Bind(timeLimit(t), anyPort))
	_, done := proxied(t, front, back, sockets.ProxyOptions{Control: control})
	push := python(t, "PUSH", "--connect", front.LastEndpoint())
	pull := python(t, "PULL", "--connect", back.LastEndpoint())
	operator := python(t, "REQ", "--connect", control.LastEndpoint())
	order := func(command string) []interop.Frame {
		pythonSays(operator, command)
		return pythonReceives(operator, 1)[0]
	}
	pythonSays(push, "abc", "de")
	pythonReceives(pull, 1)
	wantDescribed(t, order("PAUSE"), [][]byte{{}}) // the counters do not change any more
	var want []interop.Frame
	for _, n := range []uint64{2, 5, 0, 0, 0, 0, 2, 5} {
		want = append(want, interop.Describe(binary.NativeEndian.AppendUint64(nil, n)))
	}
	if got := order("STATISTICS"); !reflect.DeepEqual(got, want) {
		t.Errorf("statistics are %v", got)
	}
	order("RESUME")
	pythonSays(push, "f")
	pythonReceives(pull, 1)
	order("TERMINATE")
	check(t, <-done)
}
