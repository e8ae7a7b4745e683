package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"clustermap/internal/engine"
	"clustermap/internal/fanout"
	"clustermap/internal/queue"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// ended is a context with which a call only looks.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// wantReady checks the sockets that a Poller finds ready.
func wantReady(t *testing.T, got []Ready, err error, want ...Ready) {
	t.Helper()
	must(t, err)
	if len(got) != len(want) {
		t.Fatalf("%d sockets are ready, want %d: %v", len(got), len(want), got)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("ready[%d] is %v, want %v", i, got[i], want[i])
		}
	}
}

// wantNothing checks that no socket of a Poller is ready.
func wantNothing(t *testing.T, p *Poller) {
	t.Helper()
	if got, err := p.Wait(ended()); !errors.Is(err, context.Canceled) {
		t.Fatalf("ready: %v, %v", got, err)
	}
}

// feed makes a DEALER that is connected to a new ROUTER.
func feed(t *testing.T) (*Dealer, *Router) {
	t.Helper()
	r := bind(t, NewRouter, Options{})
	d := open(t, NewDealer, Options{})
	must(t, d.Connect(r.LastEndpoint()))
	return d, r
}

func TestPollerIn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	d1, r1 := feed(t)
	d2, r2 := feed(t)
	var p Poller
	defer p.Close()
	must(t, p.Add(r1, PollIn))
	must(t, p.Add(r2, PollIn))
	wantNothing(t, &p)

	must(t, d2.Send(ctx, []byte("a")))
	must(t, d2.Send(ctx, []byte("b")))
	for range 2 { // it tells the state, not the change
		got, err := p.Wait(ctx)
		wantReady(t, got, err, Ready{r2, PollIn})
	}
	must(t, d1.Send(ctx, []byte("c")))
	eventually(t, "both are ready", func() bool {
		got, err := p.Wait(ctx)
		return err == nil && len(got) == 2 && got[0] == Ready{r1, PollIn} && got[1] == Ready{r2, PollIn}
	})
	for _, r := range []*Router{r2, r2, r1} {
		if _, err := r.Recv(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wantNothing(t, &p)
}

func TestPollerOut(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	d := open(t, NewDealer, Options{SendHWM: 1})
	r := bind(t, NewRouter, Options{RecvHWM: 1})
	var p Poller
	defer p.Close()
	must(t, p.Add(d, PollIn|PollOut))
	wantNothing(t, &p) // no peer

	found := make(chan []Ready)
	wait := func() {
		go func() {
			ready, err := p.Wait(ctx)
			if err != nil {
				t.Error(err)
			}
			found <- ready
		}()
	}
	wait()
	must(t, d.Connect(r.LastEndpoint()))
	wantReady(t, <-found, nil, Ready{d, PollOut})

	// Until nothing goes out any more. The writer takes one last message when
	// the kernel has just taken the one before, so one look is not enough.
	large := bytes.Repeat([]byte("x"), 1<<20)
	sent := 0
	for d.Send(ended(), large) == nil || d.balancer.HasRoom() {
		sent++
		if sent > 1000 {
			t.Fatal("no queue is ever full")
		}
	}
	wait()
	// Take everything that is in between.
	received := make(chan struct{})
	go func() {
		defer close(received)
		for {
			if _, err := r.Recv(ctx); err != nil {
				return
			}
		}
	}()
	wantReady(t, <-found, nil, Ready{d, PollOut})
	must(t, r.Close())
	<-received
}

// A socket that cannot send is not ready, and one whose send calls never wait is.
func TestPollerOutByType(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	sub := open(t, NewSub, Options{})
	pub := open(t, NewPub, Options{})
	block := open(t, NewPub, Options{FullPolicy: PolicyBlock})
	router := open(t, NewRouter, Options{})
	mandatory := bind(t, NewRouter, Options{Mandatory: true})
	var p Poller
	defer p.Close()
	for _, s := range []Socket{sub, pub, block, router, mandatory} {
		must(t, p.Add(s, PollIn|PollOut))
	}
	got, err := p.Wait(ctx)
	wantReady(t, got, err, Ready{pub, PollOut}, Ready{block, PollOut}, Ready{router, PollOut})
	p.Remove(pub)
	p.Remove(block)
	p.Remove(router)
	wantNothing(t, &p)
	d := open(t, NewDealer, Options{})
	must(t, d.Connect(mandatory.LastEndpoint()))
	got, err = p.Wait(ctx)
	wantReady(t, got, err, Ready{mandatory, PollOut})
}

func TestPollerClosedSocket(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	d, r := feed(t)
	var p Poller
	defer p.Close()
	must(t, p.Add(r, PollIn))
	found := make(chan []Ready)
	go func() {
		ready, err := p.Wait(ctx)
		if err != nil {
			t.Error(err)
		}
		found <- ready
	}()
	must(t, r.Close())
	wantReady(t, <-found, nil, Ready{r, PollIn})
	if _, err := r.Recv(ctx); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	p.Remove(r)
	wantNothing(t, &p)
	if err := p.Add(r, PollIn); !errors.Is(err, ErrClosed) {
		t.Fatalf("a closed socket was added: %v", err)
	}
	must(t, d.Close())
}

// Every waiter is notified, though there is only one token.
func TestPollerWaiters(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	d, r := feed(t)
	var one, other Poller
	defer one.Close()
	defer other.Close()
	must(t, one.Add(r, PollIn))
	must(t, other.Add(r, PollIn))
	var wg sync.WaitGroup
	for i := range 16 {
		p := &one
		if i%2 == 0 {
			p = &other
		}
		wg.Go(func() {
			if ready, err := p.Wait(ctx); err != nil || len(ready) != 1 {
				t.Error(ready, err)
			}
		})
	}
	eventually(t, "all wait", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		other.mu.Lock()
		defer other.mu.Unlock()
		return one.waiters+other.waiters == 16
	})
	must(t, d.Send(ctx, []byte("a")))
	wg.Wait()
}

func TestPollerChanges(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	d, r := feed(t)
	must(t, d.Send(ctx, []byte("a")))
	var p Poller
	wantNothing(t, &p) // also without a socket
	found := make(chan []Ready)
	go func() {
		ready, err := p.Wait(ctx)
		if err != nil {
			t.Error(err)
		}
		found <- ready
	}()
	must(t, p.Add(r, PollIn)) // during a Wait
	wantReady(t, <-found, nil, Ready{r, PollIn})
	must(t, p.Add(r, PollOut)) // other events
	got, err := p.Wait(ctx)
	wantReady(t, got, err, Ready{r, PollOut})
	must(t, p.Add(r, 0))
	wantNothing(t, &p)
	must(t, p.Add(r, PollIn|PollOut))
	got, err = p.Wait(ctx)
	wantReady(t, got, err, Ready{r, PollIn | PollOut})
	p.Remove(d) // never added
	p.Close()
	wantNothing(t, &p)
	if r.core.In.Status().Watched {
		t.Error("a socket is still watched")
	}
}

func TestPollerContext(t *testing.T) {
	t.Parallel()
	_, r := feed(t)
	var p Poller
	defer p.Close()
	must(t, p.Add(r, PollIn))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := p.Wait(ctx)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// Nothing is lost between looking and waiting: one goroutine takes the messages of
// several sockets in small steps, until all of them are there.
func TestPollerTakesAll(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const sockets, each = 3, 500
	var p Poller
	defer p.Close()
	var wg sync.WaitGroup
	for range sockets {
		d, r := feed(t)
		must(t, p.Add(r, PollIn))
		wg.Go(func() {
			for i := range each {
				if err := d.Send(ctx, fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := map[Socket]int{}
	var ready []Ready
	for total := 0; total < sockets*each; {
		var err error
		ready, err = p.WaitInto(ctx, ready)
		must(t, err)
		for _, one := range ready {
			m, err := one.Socket.(*Router).Recv(ended())
			must(t, err)
			if string(m[1]) != fmt.Sprint(next[one.Socket]) {
				t.Fatalf("got %s, want %d", m[1], next[one.Socket])
			}
			next[one.Socket]++
			total++
		}
	}
	wg.Wait()
	wantNothing(t, &p)
}

// Over inproc the receiver fetches: a socket whose peer has sent a message is ready, but
// not by one that turns out to be dropped.
func TestPollerInproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := Options{Inproc: new(Inproc), SendHWM: 1, RecvHWM: 1}
	push, pull := open(t, NewPush, only(zmtp.TypePush, o)), open(t, NewPull, only(zmtp.TypePull, o))
	must(t, pull.Bind(ctx, "inproc://a"))
	pub, sub := open(t, NewPub, Options{Inproc: o.Inproc}), open(t, NewSub, Options{Inproc: o.Inproc})
	must(t, pub.Bind(ctx, "inproc://b"))
	must(t, sub.Subscribe("yes"))
	must(t, sub.Connect("inproc://b"))
	must(t, pub.WaitSubscribers(ctx, "yes", 1))

	var p Poller
	defer p.Close()
	must(t, p.Add(push, PollOut))
	must(t, p.Add(pull, PollIn))
	must(t, p.Add(sub, PollIn))
	wantNothing(t, &p)
	must(t, push.Connect("inproc://a"))
	ready, err := p.Wait(ctx)
	wantReady(t, ready, err, Ready{push, PollOut})
	must(t, push.TrySend([]byte("1")))
	ready, err = p.Wait(ctx)
	wantReady(t, ready, err, Ready{push, PollOut}, Ready{pull, PollIn})
	must(t, push.TrySend([]byte("2")))
	ready, err = p.Wait(ctx)
	wantReady(t, ready, err, Ready{pull, PollIn})
	for _, want := range []string{"1", "2"} {
		m, err := pull.TryRecv()
		if err != nil || string(m[0]) != want {
			t.Fatal(m, err)
		}
	}
	ready, err = p.Wait(ctx)
	wantReady(t, ready, err, Ready{push, PollOut})
	p.Remove(push)

	must(t, pub.Send(ctx, []byte("yes")))
	must(t, sub.Unsubscribe("yes"))
	wantNothing(t, &p) // it is not subscribed to any more
	must(t, sub.Subscribe("other"))
	must(t, pub.WaitSubscribers(ctx, "other", 1))
	must(t, pub.Send(ctx, []byte("other")))
	ready, err = p.Wait(ctx)
	wantReady(t, ready, err, Ready{sub, PollIn})
	if m, err := sub.TryRecv(); err != nil || string(m[0]) != "other" {
		t.Fatal(m, err)
	}
}

func TestReadable(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	d1, r1 := feed(t)
	d2, r2 := feed(t)
	const each = 500
	must(t, d1.Send(ctx, []byte("before the first call")))
	eventually(t, "it is there", r1.core.In.Waiting)
	if first := r1.Readable(); first != r1.Readable() {
		t.Fatal("two channels")
	}
	var wg sync.WaitGroup
	for _, d := range []*Dealer{d1, d2} {
		wg.Go(func() {
			for range each {
				if err := d.Send(ctx, []byte("a")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2*each + 1 {
		var r *Router
		select {
		case <-r1.Readable():
			r = r1
		case <-r2.Readable():
			r = r2
		case <-ctx.Done():
			t.Fatal("messages are missing")
		}
		if _, err := r.Recv(ended()); err != nil {
			t.Fatal(err) // the channel had a value, so there is a message
		}
	}
	wg.Wait()
	select {
	case <-r1.Readable():
		t.Fatal("a value without a message")
	case <-r2.Readable():
		t.Fatal("a value without a message")
	default:
	}
	must(t, d1.Send(ctx, []byte("unread")))
	eventually(t, "it is there", r1.core.In.Waiting)
	must(t, r1.Close())
	<-r1.Readable()
	for range 2 {
		if _, open := <-r1.Readable(); open {
			t.Fatal("not closed")
		}
	}
	must(t, d2.Close())
	if _, open := <-d2.Readable(); open {
		t.Fatal("a closed socket's channel is open")
	}
}

// A batch that takes everything takes the value as well.
func TestReadableBatch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	d, r := feed(t)
	ready := r.Readable()
	must(t, d.Send(ctx, []byte("a")))
	eventually(t, "it is there", r.core.In.Waiting)
	var b Batch
	defer b.Release()
	must(t, r.RecvBatch(ctx, &b))
	select {
	case <-ready:
		t.Fatal("a value without a message")
	default:
	}
}

func TestAllocPoller(t *testing.T) {
	d, r := feed(t)
	var p Poller
	defer p.Close()
	must(t, p.Add(r, PollIn))
	r.Readable()
	ctx := testContext(t)
	body := [][]byte{[]byte("a")}
	var ready []Ready
	var b Batch
	defer b.Release()
	one := func() {
		if err := d.Send(ctx, body...); err != nil {
			t.Fatal(err)
		}
		var err error
		if ready, err = p.WaitInto(ctx, ready); err != nil {
			t.Fatal(err)
		}
		if err := r.RecvBatch(ctx, &b); err != nil {
			t.Fatal(err)
		}
	}
	if n := testenv.Allocs(100, 500, one); n >= 1 {
		t.Errorf("%v allocations a message", n)
	}
}

// TestPollerOutOfLog: with PolicyBlock, a publisher that is ready takes a
// message, also when the peers share a log.
func TestPollerOutOfLog(t *testing.T) {
	t.Parallel()
	pub := open(t, NewPub, Options{SendHWM: 4, FullPolicy: PolicyBlock, Linger: LingerNone})
	var peers []*engine.Pipe
	for range 3 {
		q := engine.NewPipe(&pub.core, "tcp://127.0.0.1:1", false)
		peer := engine.NewPeer(q, zmtp.Peer{})
		q.Out.Attach(peer.Conn())
		must(t, pub.attach(q, peer))
		pub.fan.Lock()
		_, err := pub.handle(peer, fanout.SubscribeFrame, nil)
		pub.fan.Unlock()
		must(t, err)
		peers = append(peers, q)
	}
	var p Poller
	defer p.Close()
	must(t, p.Add(pub, PollOut))
	sent := 0
	for {
		ready, err := p.Wait(ended())
		if err != nil {
			break
		}
		wantReady(t, ready, nil, Ready{pub, PollOut})
		must(t, pub.TrySend([]byte("x")))
		if sent++; sent > 100 {
			t.Fatal("no queue is ever full")
		}
	}
	if sent != 4 {
		t.Errorf("%d messages found room for 4", sent)
	}
	for _, q := range peers {
		var l queue.Load
		q.Out.Take(&l, nil, func() {})
		l.Clear()
	}
	ready, err := p.Wait(ended())
	wantReady(t, ready, err, Ready{pub, PollOut})
}
