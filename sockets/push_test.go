package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// TestPushUnwanted: messages that a PULL sends all the same are dropped.
func TestPushUnwanted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := bind(t, NewPush, Options{})
	r := dialRaw(t, push.LastEndpoint()).Greet("PULL", nil)
	r.Send(wire("what", "is"), wire("this"))
	eventually(t, "both are thrown away", func() bool {
		peers := push.Peers()
		return len(peers) == 1 && peers[0].Discarded == 2
	})
	must(t, push.Send(ctx, []byte("a message")))
	if m := r.Message(); string(m[0]) != "a message" {
		t.Errorf("%q", m)
	}
}

// TestPushSendBatch: a batch is divided among the peers, of any sizes, in order
// for each of them.
func TestPushSendBatch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := open(t, NewPush, Options{})
	var pulls []*Pull
	for range 3 {
		pulls = append(pulls, bind(t, NewPull, Options{}))
		must(t, push.Connect(pulls[len(pulls)-1].LastEndpoint()))
	}
	if n, err := push.SendBatch(ctx, nil); n != 0 || err != nil {
		t.Errorf("an empty batch: %d, %v", n, err)
	}
	var bodies [][]byte
	for i := range 100 {
		bodies = append(bodies, append([]byte{byte(i)}, make([]byte, i*i)...))
	}
	n, err := push.SendBatch(ctx, bodies)
	must(t, err)
	if n != len(bodies) {
		t.Errorf("%d of %d were sent", n, len(bodies))
	}
	next := 0
	for i, each := range []int{34, 34, 32} {
		for range each {
			m, err := pulls[i].Recv(ctx)
			must(t, err)
			if len(m) != 1 || !bytes.Equal(m[0], bodies[next]) {
				t.Fatalf("pull %d got %d frames, message %d in place of %d", i, len(m), m[0][0], next)
			}
			next++
		}
	}
	// Batches of one go to one peer after the other.
	for i := range 6 {
		if _, err := push.SendBatch(ctx, [][]byte{{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, pull := range pulls {
		for range 2 {
			_, err := pull.Recv(ctx)
			must(t, err)
		}
	}
}

// TestPushSendBatchBounds: a batch larger than all the room there is goes out in
// parts, and the number that went out is returned.
func TestPushSendBatchBounds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := open(t, NewPush, quick(Options{SendHWM: 7, Linger: LingerNone, MaxMessageSize: 100}))
	ends := []string{freePort(t), freePort(t)}
	for _, e := range ends {
		must(t, push.Connect(e))
	}
	bodies := make([][]byte, 20)
	for i := range bodies {
		bodies[i] = []byte{byte(i)}
	}
	if n, err := push.SendBatch(ctx, [][]byte{{1}, make([]byte, 99)}); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %d, %v", n, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	n, err := push.SendBatch(ended, bodies)
	if n != 14 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v; want 14 and the context's error", n, err)
	}
	for _, p := range push.Peers() {
		if p.QueuedMessages != 7 {
			t.Errorf("%+v", p)
		}
	}
	// The rest waits for one of them to come up.
	result := make(chan error)
	go func() {
		n, err := push.SendBatch(ctx, bodies[14:])
		if n != 6 {
			err = fmt.Errorf("%d sent, %w", n, err)
		}
		result <- err
	}()
	pull := open(t, NewPull, Options{})
	must(t, pull.Bind(ctx, ends[1]))
	must(t, <-result)
	for range 7 + 6 {
		_, err := pull.Recv(ctx)
		must(t, err)
	}

	bounded := open(t, NewPush, quick(Options{SendHWMBytes: 10, Linger: LingerNone}))
	must(t, bounded.Connect(freePort(t)))
	if n, err := bounded.SendBatch(ended, bodies); n != 4 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v: messages of 3 bytes, the fourth of which fills 10", n, err)
	}
	closed := open(t, NewPush, Options{})
	must(t, closed.Close())
	if _, err := closed.SendBatch(ctx, bodies); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestPushConcurrent: senders of all kinds at once; every message arrives once.
func TestPushConcurrent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := bind(t, NewPush, Options{SendHWM: 10})
	const peers, each = 3, 300
	var wg sync.WaitGroup
	var mu sync.Mutex
	came := map[string]int{}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	for range peers {
		pull := open(t, NewPull, Options{RecvHWM: 10})
		must(t, pull.Connect(push.LastEndpoint()))
		wg.Go(func() {
			var b Batch
			defer b.Release()
			for pull.RecvBatch(stop, &b) == nil {
				mu.Lock()
				for i := range b.Len() {
					body, _ := b.Message(i).Next()
					came[string(body)]++
				}
				if len(came) == 3*each {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for i := range each {
			if err := push.Send(ctx, fmt.Append(nil, "send", i)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for i := range each {
			if err := push.sendWire(ctx, wire(fmt.Sprint("wire", i)), 1, nil); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		var bodies [][]byte
		for i := range each {
			bodies = append(bodies, fmt.Append(nil, "batch", i))
		}
		if n, err := push.SendBatch(ctx, bodies); n != each || err != nil {
			t.Error(n, err)
		}
	})
	wg.Wait()
	for m, n := range came {
		if n != 1 {
			t.Errorf("%s came %d times", m, n)
		}
	}
	if len(came) != 3*each {
		t.Errorf("%d messages came", len(came))
	}
}

func TestAllocPushPull(t *testing.T) {
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{RecvHWM: -1})
	push := open(t, NewPush, Options{SendHWM: -1, SendTimeout: hang})
	must(t, push.Connect(pull.LastEndpoint()))
	var b Batch
	defer b.Release()
	recv := func(b *Batch) error { return pull.RecvBatch(ctx, b) }
	bodies := make([][]byte, 200)
	for i := range bodies {
		bodies[i] = make([]byte, i)
	}
	many := bytes.Repeat(wire("x", "y"), 1000)
	l := newLender()
	noAllocs(t, "Push", func() {
		must(t, push.Send(ctx, payload...))
		must(t, push.TrySend(payload...))
		n, err := push.SendBatch(ctx, bodies)
		must(t, err)
		must(t, push.sendWire(ctx, many, 1000, l))
		takeAll(t, recv, &b, 2+n+1000)
	})
}
