package sockets

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

func newProxy(t *testing.T, frontend, backend Socket, o ProxyOptions) *SteerableProxy {
	t.Helper()
	p, err := NewSteerableProxy(frontend, backend, o)
	must(t, err)
	return p
}

// A queue: requests of several clients are shared out among several workers,
// and each answer finds its way back.
func TestProxyQueue(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front := bind(t, NewRouter, Options{})
	back := bind(t, NewDealer, Options{})
	p := newProxy(t, front, back, ProxyOptions{})
	running(t, p)
	const clients, workers, each = 3, 3, 300
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for range workers {
		r := dialled(t, NewRouter, Options{}, back.LastEndpoint())
		wg.Go(func() {
			for {
				m, err := r.Recv(ctx)
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || len(m) < 4 {
					t.Error(m, err)
					return
				}
				m[len(m)-1] = append([]byte("re: "), m[len(m)-1]...)
				if err := r.Send(ctx, m...); err != nil {
					t.Error(err)
				}
			}
		})
		t.Cleanup(func() { r.Close() }) // before the wait
	}
	eventually(t, "all workers are there", func() bool { return len(back.Peers()) == workers })
	var asking sync.WaitGroup
	for c := range clients {
		d := dialled(t, NewDealer, Options{}, front.LastEndpoint())
		asking.Go(func() {
			want := map[string]bool{}
			for i := range each {
				text := fmt.Sprintf("%d/%d", c, i)
				want["re: "+text] = true
				if err := d.Send(ctx, nil, []byte(text)); err != nil {
					t.Error(err)
				}
			}
			for range each {
				m, err := d.Recv(ctx)
				if err != nil || len(m) != 2 || len(m[0]) != 0 || !want[string(m[1])] {
					t.Error(m, err)
					return
				}
				delete(want, string(m[1]))
			}
		})
	}
	asking.Wait()
	var s ProxyStats
	// The last messages may be there before they are counted.
	eventually(t, "all is counted", func() bool {
		s = p.Statistics()
		return s.BackendOut.Messages == clients*each && s.FrontendOut.Messages == clients*each
	})
	size := uint64(0)
	for c := range clients {
		for i := range each {
			size += uint64(len(fmt.Sprintf("%d/%d", c, i)))
		}
	}
	in := Traffic{clients * each, 3 * clients * each, size + 5*clients*each}
	out := in
	out.Bytes += 4 * clients * each
	if want := (ProxyStats{in, in, out, out}); s != want {
		t.Errorf("statistics\n%+v, want\n%+v", s, want)
	}
}

// A forwarder: subscriptions go one way, and messages the other.
func TestProxyForwarder(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front := bind(t, NewXSub, Options{})
	back := bind(t, NewXPub, Options{FullPolicy: PolicyBlock})
	running(t, newProxy(t, front, back, ProxyOptions{}))
	pub := dialled(t, NewPub, Options{FullPolicy: PolicyBlock}, front.LastEndpoint())
	other := dialled(t, NewSub, Options{}, back.LastEndpoint())
	must(t, other.Subscribe("b"))
	sub := dialled(t, NewSub, Options{}, back.LastEndpoint())
	must(t, sub.Subscribe("a"))
	must(t, pub.WaitSubscribers(ctx, "a", 1))
	must(t, pub.WaitSubscribers(ctx, "b", 1))
	const n = 2000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			for _, topic := range []string{"a", "b", "c"} {
				if err := pub.Send(ctx, []byte(topic), fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for topic, s := range map[string]*Sub{"a": sub, "b": other} {
		wg.Go(func() {
			for i := range n {
				m, err := s.Recv(ctx)
				if err != nil || len(m) != 2 || string(m[0]) != topic || string(m[1]) != fmt.Sprint(i) {
					t.Errorf("%s: %d: %s %v", topic, i, m, err)
					return
				}
			}
		})
	}
	wg.Wait()
	must(t, sub.Unsubscribe("a"))
	eventually(t, "the end of the subscription has arrived", func() bool {
		return pub.Subscriptions() == 1
	})
}

// A message goes to each worker in turn.
func TestProxyInTurn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := bind(t, NewPull, Options{})
	out := bind(t, NewPush, Options{})
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	const workers, each = 4, 50
	var pulls [workers]*Pull
	for i := range pulls {
		pulls[i] = dialled(t, NewPull, Options{}, out.LastEndpoint())
	}
	eventually(t, "all workers are there", func() bool {
		pipes, _ := out.balancer.Status()
		return pipes == workers
	})
	for i := range workers * each {
		must(t, push.Send(ctx, fmt.Append(nil, i)))
	}
	running(t, newProxy(t, in, out, ProxyOptions{}))
	seen := map[string]bool{}
	for _, pull := range pulls {
		for range each {
			m, err := pull.Recv(ctx)
			must(t, err)
			seen[string(m[0])] = true
		}
	}
	if len(seen) != workers*each {
		t.Errorf("%d messages, want %d", len(seen), workers*each)
	}
}

// Messages of all shapes stay as they are, in their order, and capture sockets
// get the same.
func TestProxyShapes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := bind(t, NewPull, Options{})
	out := bind(t, NewPush, Options{})
	capture := bind(t, NewPush, Options{})
	publish := bind(t, NewPub, Options{FullPolicy: PolicyBlock})
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	pull := dialled(t, NewPull, Options{}, out.LastEndpoint())
	copied := dialled(t, NewPull, Options{}, capture.LastEndpoint())
	sub := open(t, NewSub, Options{})
	must(t, sub.Subscribe(""))
	must(t, sub.Connect(publish.LastEndpoint()))
	must(t, sub.WaitSubscribed(ctx))
	running(t, newProxy(t, in, out, ProxyOptions{Capture: []Socket{capture, publish}}))

	var messages []Message
	for _, sizes := range [][]int{{0}, {1}, {255}, {256}, {0, 0, 0}, {70000, 0, 255}, {300 << 10}, {5, 1 << 20, 6}} {
		for range 20 {
			var m Message
			for _, n := range sizes {
				m = append(m, bytes.Repeat([]byte{byte(len(messages))}, n))
			}
			messages = append(messages, m)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, m := range messages {
			if err := push.Send(ctx, m...); err != nil {
				t.Error(err)
			}
		}
	})
	for _, r := range []interface {
		Recv(context.Context) (Message, error)
	}{pull, copied, sub} {
		wg.Go(func() {
			for i, want := range messages {
				got, err := r.Recv(ctx)
				if err != nil || len(got) != len(want) {
					t.Errorf("%T: message %d has %d frames, want %d: %v", r, i, len(got), len(want), err)
					return
				}
				for j := range got {
					if !bytes.Equal(got[j], want[j]) {
						t.Errorf("%T: frame %d of message %d is another", r, j, i)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// While the backend takes nothing, the frontend's peers are held back, and
// nothing is lost.
func TestProxyHoldsBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := bind(t, NewPull, Options{RecvHWM: 10})
	out := bind(t, NewPush, Options{SendHWM: 10})
	push := dialled(t, NewPush, Options{SendHWM: 10}, in.LastEndpoint())
	p := newProxy(t, in, out, ProxyOptions{})
	end := running(t, p)
	body := make([]byte, 64<<10)
	sent := uint32(0)
	send := func(ctx context.Context) error {
		binary.BigEndian.PutUint32(body, sent)
		err := push.Send(ctx, body)
		if err == nil {
			sent++
		}
		return err
	}
	must(t, send(ctx))
	eventually(t, "the sender is held back", func() bool {
		for sent < 10000 && send(ended()) == nil {
		}
		return !push.balancer.HasRoom()
	})
	if n := p.Statistics().FrontendIn.Messages; n != 0 {
		t.Errorf("%d messages were taken for nobody", n)
	}
	pull := dialled(t, NewPull, Options{}, out.LastEndpoint())
	for i := range sent {
		m, err := pull.Recv(ctx)
		must(t, err)
		if n := binary.BigEndian.Uint32(m[0]); n != i {
			t.Fatalf("message %d came after %d", n, i)
		}
	}
	end()
}

func TestProxyPause(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := bind(t, NewPull, Options{})
	out := bind(t, NewPush, Options{})
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	pull := dialled(t, NewPull, Options{}, out.LastEndpoint())
	p := newProxy(t, in, out, ProxyOptions{})
	p.Resume() // without a pause
	must(t, p.Pause(ctx))
	running(t, p)
	eventually(t, "it runs", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.end != nil })
	if err := p.Run(ctx); !errors.Is(err, ErrRunning) {
		t.Errorf("a second Run: %v", err)
	}
	for i := range 50 {
		must(t, push.Send(ctx, fmt.Append(nil, i)))
		eventually(t, "the message waits", in.core.In.Waiting)
		if got := p.Statistics().FrontendIn.Messages; got != uint64(i) {
			t.Fatalf("%d messages were forwarded, want %d", got, i)
		}
		must(t, p.Pause(ctx)) // a second one changes nothing
		p.Resume()
		m, err := pull.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint(i) {
			t.Fatalf("message %s, want %d", m[0], i)
		}
		must(t, p.Pause(ctx))
	}
}

// A pause or the end comes also while there is no room for messages that were taken.
func TestProxyPauseWhileFull(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := bind(t, NewPull, Options{})
	out := bind(t, NewPush, Options{SendHWM: 1, Linger: LingerNone})
	address := out.LastEndpoint()
	must(t, out.Connect("tcp://127.0.0.1:1")) // has room for one message, and no peer is there
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	for i := range 10 {
		must(t, push.Send(ctx, fmt.Append(nil, i)))
	}
	p := newProxy(t, in, out, ProxyOptions{})
	end := running(t, p)
	eventually(t, "one was sent", func() bool { return p.Statistics().BackendOut.Messages == 1 })
	must(t, p.Pause(ctx))
	p.Resume()
	pull := open(t, NewPull, Options{})
	must(t, pull.Connect(address))
	// Connect's pipe holds one of them, the peer gets the others.
	for i := range 9 {
		m, err := pull.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint(i+1) {
			t.Fatalf("message %s, want %d", m[0], i+1)
		}
	}
	end()
}

func TestProxyTerminate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := bind(t, NewPull, Options{})
	out := bind(t, NewPush, Options{})
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	pull := dialled(t, NewPull, Options{}, out.LastEndpoint())
	p := newProxy(t, in, out, ProxyOptions{})
	p.Terminate() // it does not run
	for range 3 { // and again
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		must(t, push.Send(ctx, []byte("a")))
		_, err := pull.Recv(ctx)
		must(t, err)
		p.Terminate()
		must(t, <-done)
	}
	must(t, p.Pause(ctx))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	eventually(t, "it runs", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.end != nil && p.busy == 0 })
	p.Terminate() // during a pause
	must(t, <-done)
}

func TestProxyEnds(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"frontend", "backend", "capture", "control"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			in := bind(t, NewRouter, Options{})
			out := bind(t, NewDealer, Options{})
			capture := bind(t, NewPub, Options{})
			control := bind(t, NewPull, Options{})
			p := newProxy(t, in, out, ProxyOptions{Capture: []Socket{capture}, Control: control})
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			must(t, map[string]Socket{"frontend": in, "backend": out, "capture": capture, "control": control}[which].Close())
			if which == "capture" {
				// It is noticed when a message is to be captured.
				dialled(t, NewPull, Options{}, control.LastEndpoint())
				d := dialled(t, NewDealer, Options{}, in.LastEndpoint())
				dialled(t, NewRouter, Options{}, out.LastEndpoint())
				must(t, d.Send(ctx, []byte("a")))
			}
			if err := <-done; !errors.Is(err, ErrClosed) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	push := open(t, NewPush, Options{})
	pull := open(t, NewPull, Options{})
	sub := open(t, NewSub, Options{})
	for name, make := range map[string]func() (*SteerableProxy, error){
		"nothing to forward": func() (*SteerableProxy, error) { return NewSteerableProxy(push, push, ProxyOptions{}) },
		"nobody to send":     func() (*SteerableProxy, error) { return NewSteerableProxy(pull, sub, ProxyOptions{}) },
		"a PULL captures": func() (*SteerableProxy, error) {
			return NewSteerableProxy(pull, push, ProxyOptions{Capture: []Socket{sub}})
		},
		"a PUSH controls": func() (*SteerableProxy, error) { return NewSteerableProxy(pull, push, ProxyOptions{Control: push}) },
	} {
		if _, err := make(); !errors.Is(err, ErrCannotForward) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Proxy(ended(), pull, push); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// One socket is both sides: every peer gets back its messages.
func TestProxySingleSocket(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	r := bind(t, NewRouter, Options{})
	p := newProxy(t, r, r, ProxyOptions{})
	running(t, p)
	for i := range 3 {
		d := dialled(t, NewDealer, Options{}, r.LastEndpoint())
		must(t, d.Send(ctx, []byte("a"), fmt.Append(nil, i)))
		m, err := d.Recv(ctx)
		if err != nil || len(m) != 2 || string(m[1]) != fmt.Sprint(i) {
			t.Fatal(m, err)
		}
	}
	eventually(t, "all is counted", func() bool {
		s := p.Statistics()
		return s.FrontendOut.Messages == 3 && s.FrontendIn == s.BackendIn && s.FrontendOut == s.BackendOut
	})
}

// Types that take turns: a REP and a REQ, and a REP by itself.
func TestProxyInTurns(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front := bind(t, NewRep, Options{})
	back := bind(t, NewReq, Options{})
	running(t, newProxy(t, front, back, ProxyOptions{}))
	echo := open(t, NewRep, Options{})
	must(t, echo.Connect(back.LastEndpoint()))
	running(t, newProxy(t, echo, echo, ProxyOptions{}))
	var wg sync.WaitGroup
	for c := range 3 {
		req := dialled(t, NewReq, Options{}, front.LastEndpoint())
		wg.Go(func() {
			for i := range 50 {
				if err := req.Send(ctx, fmt.Append(nil, c), fmt.Append(nil, i)); err != nil {
					t.Error(err)
					return
				}
				m, err := req.Recv(ctx)
				if err != nil || len(m) != 2 || string(m[0]) != fmt.Sprint(c) || string(m[1]) != fmt.Sprint(i) {
					t.Errorf("%d: %d: %s %v", c, i, m, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Everything in memory: lent bytes pass through two sockets.
func TestProxyInproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := Options{Inproc: new(Inproc)}
	front, back := open(t, NewRouter, o), open(t, NewDealer, o)
	must(t, front.Bind(ctx, "inproc://front"))
	must(t, back.Bind(ctx, "inproc://back"))
	running(t, newProxy(t, front, back, ProxyOptions{}))
	worker := open(t, NewRouter, o)
	must(t, worker.Connect("inproc://back"))
	running(t, newProxy(t, worker, worker, ProxyOptions{}))
	var wg sync.WaitGroup
	for range 3 {
		d := open(t, NewDealer, o)
		must(t, d.Connect("inproc://front"))
		wg.Go(func() {
			for i := range 100 {
				body := bytes.Repeat([]byte{byte(i)}, 5*i*i)
				if err := d.Send(ctx, body, body); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for i := range 100 {
				m, err := d.Recv(ctx)
				body := bytes.Repeat([]byte{byte(i)}, 5*i*i)
				if err != nil || len(m) != 2 || !bytes.Equal(m[0], body) || !bytes.Equal(m[1], body) {
					t.Errorf("message %d is another: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Two PAIRs at either side, and everything in both directions at once.
func TestProxyPairs(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front := bind(t, NewPair, Options{})
	back := bind(t, NewPair, Options{})
	running(t, newProxy(t, front, back, ProxyOptions{}))
	ends := [2]*Pair{dialled(t, NewPair, Options{}, front.LastEndpoint()), dialled(t, NewPair, Options{}, back.LastEndpoint())}
	const n = 3000
	var wg sync.WaitGroup
	for _, end := range ends {
		wg.Go(func() {
			for i := range n {
				if err := end.Send(ctx, fmt.Append(nil, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for i := range n {
				if m, err := end.Recv(ctx); err != nil || string(m[0]) != fmt.Sprint(i) {
					t.Errorf("%d: %s %v", i, m, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Time-outs of the sockets do not end a proxy.
func TestProxyTimeouts(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := Options{SendTimeout: NoWait, RecvTimeout: NoWait}
	in := bind(t, NewPull, only(zmtp.TypePull, o))
	out := bind(t, NewPush, only(zmtp.TypePush, o))
	control := bind(t, NewRep, only(zmtp.TypeRep, o))
	running(t, newProxy(t, in, out, ProxyOptions{Control: control}))
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	must(t, push.Send(ctx, []byte("a")))
	pull := dialled(t, NewPull, Options{}, out.LastEndpoint())
	if m, err := pull.Recv(ctx); err != nil || string(m[0]) != "a" {
		t.Fatal(m, err)
	}
	operator := dialled(t, NewReq, Options{}, control.LastEndpoint())
	for _, command := range []string{"PAUSE", "RESUME", "DANCE"} {
		must(t, operator.Send(ctx, []byte(command)))
		if m, err := operator.Recv(ctx); err != nil || len(m) != 1 || len(m[0]) != 0 {
			t.Fatalf("%s was answered with %q, %v", command, m, err)
		}
	}
}

// A message that a ROUTER gets for an unknown peer is dropped, and the others go on.
func TestProxyUnroutable(t *testing.T) {
	t.Parallel()
	for _, mandatory := range []bool{false, true} {
		ctx := testContext(t)
		in := bind(t, NewDealer, Options{})
		out := bind(t, NewRouter, Options{Mandatory: mandatory})
		connected := make(chan *Peer, 1)
		source := dialled(t, NewRouter, Options{Mandatory: true, Monitor: func(e Event) {
			if e.Kind == EventHandshakeSucceeded {
				connected <- e.Peer
			}
		}}, in.LastEndpoint())
		sink := dialled(t, NewDealer, Options{Identity: []byte("sink")}, out.LastEndpoint())
		eventually(t, "the sink is there", func() bool {
			return out.routes.Find([]byte("sink")).Pipe != nil
		})
		peer := <-connected
		running(t, newProxy(t, in, out, ProxyOptions{}))
		for i := range 100 {
			must(t, source.SendTo(ctx, peer, []byte("nobody"), []byte("lost")))
			must(t, source.SendTo(ctx, peer, []byte("sink")))
			must(t, source.SendTo(ctx, peer, []byte("sink"), fmt.Append(nil, i)))
		}
		for i := range 100 {
			m, err := sink.Recv(ctx)
			if err != nil || len(m) != 1 || string(m[0]) != fmt.Sprint(i) {
				t.Fatal(i, m, err)
			}
		}
	}
}

// Commands over a socket, in libzmq's form.
func TestProxyControl(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := bind(t, NewPull, Options{})
	out := bind(t, NewPush, Options{})
	control := bind(t, NewRouter, Options{})
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	pull := dialled(t, NewPull, Options{}, out.LastEndpoint())
	operator := dialled(t, NewDealer, Options{}, control.LastEndpoint())
	p := newProxy(t, in, out, ProxyOptions{Control: control})
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	must(t, push.Send(ctx, []byte("abc"), []byte("de")))
	_, err := pull.Recv(ctx)
	must(t, err)
	statistics := func() (numbers [8]uint64) {
		must(t, operator.Send(ctx, []byte("STATISTICS")))
		m, err := operator.Recv(ctx)
		must(t, err)
		if len(m) != 8 {
			t.Fatalf("%d frames", len(m))
		}
		for i := range m {
			if len(m[i]) != 8 {
				t.Fatalf("a number of %d bytes", len(m[i]))
			}
			numbers[i] = binary.NativeEndian.Uint64(m[i])
		}
		return numbers
	}
	eventually(t, "it is counted", func() bool { return statistics() == [8]uint64{2, 5, 0, 0, 0, 0, 2, 5} })
	must(t, operator.Send(ctx, []byte("PAUSE")))
	statistics() // so it was obeyed
	must(t, push.Send(ctx, []byte("f")))
	eventually(t, "the message waits", in.core.In.Waiting)
	if got := statistics(); got[0] != 2 {
		t.Errorf("%d frames were forwarded during a pause", got[0])
	}
	must(t, operator.Send(ctx, []byte("DANCE"))) // no such command
	must(t, operator.Send(ctx, []byte("RESUME")))
	_, err = pull.Recv(ctx)
	must(t, err)
	must(t, operator.Send(ctx, []byte("TERMINATE")))
	must(t, <-done)
}

func TestAllocProxy(t *testing.T) {
	ctx := testContext(t)
	in := bind(t, NewPull, Options{})
	out := bind(t, NewPush, Options{})
	push := dialled(t, NewPush, Options{}, in.LastEndpoint())
	pull := dialled(t, NewPull, Options{}, out.LastEndpoint())
	running(t, newProxy(t, in, out, ProxyOptions{}))
	body := [][]byte{make([]byte, 100)}
	var b Batch
	defer b.Release()
	some := func() {
		for range 100 {
			if err := push.Send(ctx, body...); err != nil {
				t.Fatal(err)
			}
		}
		for got := 0; got < 100; got += b.Len() {
			if err := pull.RecvBatch(ctx, &b); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testenv.Allocs(100, 100, some); n >= 1 {
		t.Errorf("%v allocations for 100 messages", n)
	}
}
