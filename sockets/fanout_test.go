package sockets

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"clustermap/internal/queue"
)

// fanned is a publisher with subscribers to everything and without writers.
func fanned(t *testing.T, n int, o Options) (*Pub, []*pipe) {
	t.Helper()
	pub, err := NewPub(o)
	must(t, err)
	t.Cleanup(func() { pub.Close() })
	var peers []*pipe
	for range n {
		q := newPipe(&pub.socket, "tcp://127.0.0.1:1", false)
		peer := &Peer{pipe: q}
		q.out.Attach(&peer.conduit)
		pub.subs.attach(q, peer)
		pub.subs.Lock()
		_, err := pub.subs.subscribe(q, nil, unbounded)
		pub.subs.Unlock()
		must(t, err)
		peers = append(peers, q)
	}
	return pub, peers
}

// drain takes the messages that wait for peers, as their writers would, and returns the
// bytes.
func drain(peers ...*pipe) (taken []byte) {
	for _, q := range peers {
		var l queue.Load
		q.out.Take(&l, nil, func() {})
		taken = append(taken, bytes.Join(l.Gather(nil), nil)...)
		l.Clear()
	}
	return taken
}

// waiting is how much waits for a peer.
func waiting(q *pipe) (messages, size int) {
	s := q.out.Status()
	return s.Messages, s.Bytes
}

// TestFanOut: all peers get the same bytes, small messages and large ones, and
// those that are shared are given back when the last one is done.
func TestFanOut(t *testing.T) {
	t.Parallel()
	pub, peers := fanned(t, 3, Options{})
	var want []byte
	for _, message := range [][]string{{"a"}, {"b", ""}, {"c", string(make([]byte, queue.LendFrom))}, {""}, {string(make([]byte, 300))}} {
		frames := make([][]byte, len(message))
		for i, f := range message {
			frames[i] = []byte(f)
		}
		must(t, pub.Send(context.Background(), frames...))
		want = append(want, wire(message...)...)
	}
	for i, q := range peers {
		if messages, size := waiting(q); messages != 5 || size != len(want) {
			t.Errorf("peer %d has %d messages of %d bytes, want 5 of %d", i, messages, size, len(want))
		}
	}
	for i, q := range peers { // the bytes of the last one must survive the others' releases
		if !bytes.Equal(drain(q), want) {
			t.Errorf("peer %d has something else than was sent", i)
		}
	}
}

// TestFanOutBlock: no peer gets a message for which one of them has no room, however room
// was used up and came about, and none gets more than the high-water mark.
func TestFanOutBlock(t *testing.T) {
	t.Parallel()
	const mark = 10
	pub, peers := fanned(t, 3, Options{SendHWM: mark, FullPolicy: PolicyBlock})
	counts := func() (n [3]int) {
		for i, q := range peers {
			n[i], _ = waiting(q)
		}
		return n
	}
	fill := func() (sent int) {
		for {
			switch err := pub.TrySend([]byte("m")); {
			case err == nil:
				sent++
			case errors.Is(err, ErrWouldBlock):
				return sent
			default:
				t.Fatal(err)
			}
		}
	}
	if n := fill(); n != mark || counts() != [3]int{mark, mark, mark} {
		t.Fatalf("%d messages were sent, and %v are queued, want %d", n, counts(), mark)
	}
	drain(peers[1])
	if n := fill(); n != 0 || counts() != [3]int{mark, 0, mark} {
		t.Fatalf("%d messages were sent where two of three peers are full, and %v are queued", n, counts())
	}
	drain(peers[0], peers[2])
	// Messages in wire form or for one peer alone count as well.
	must(t, pub.Send(context.Background(), []byte("m")))
	must(t, pub.SendWire(context.Background(), bytes.Repeat(wire("m"), 4), 4, nil))
	pub.subs.Lock()
	pub.sendAlone(peers[0], [][]byte{[]byte("m")})
	pub.subs.Unlock()
	if n := fill(); n != mark-6 || counts() != [3]int{mark, mark - 1, mark - 1} {
		t.Errorf("%d messages were sent, and %v are queued, want %d more and %d for the first", n, counts(), mark-6, mark)
	}
}

// TestFanOutDrop: a full peer does not keep the others from a message.
func TestFanOutDrop(t *testing.T) {
	t.Parallel()
	pub, peers := fanned(t, 2, Options{SendHWM: 2})
	for range 2 {
		must(t, pub.Send(context.Background(), []byte("m")))
	}
	drain(peers[0])
	must(t, pub.Send(context.Background(), []byte("m")))
	got, _ := waiting(peers[0])
	full, _ := waiting(peers[1])
	if drops := peers[1].out.Status().Drops; got != 1 || full != 2 || drops != 1 {
		t.Errorf("%d and %d messages, %d dropped, want 1 and 2, 1", got, full, drops)
	}
}

// TestPubSendBatch: a batch brings each peer the same messages as that many calls of
// Send.
func TestPubSendBatch(t *testing.T) {
	t.Parallel()
	pub, peers := fanned(t, 4, Options{SendHWM: -1})
	for i, topic := range []string{"a", "b"} {
		pub.subs.Lock()
		pub.subs.cancel(peers[i], nil)
		_, err := pub.subs.subscribe(peers[i], []byte(topic), unbounded)
		pub.subs.Unlock()
		must(t, err)
	}
	bodies := make([][]byte, 3000)
	want := make([][]byte, len(peers))
	for i := range bodies {
		bodies[i] = append([]byte{"abc"[i%3]}, make([]byte, i)...)
		for q := range peers {
			if q >= 2 || q == i%3 {
				want[q] = append(want[q], wire(string(bodies[i]))...)
			}
		}
	}
	n, err := pub.SendBatch(context.Background(), bodies)
	if err != nil || n != len(bodies) {
		t.Fatalf("%d of %d were sent: %v", n, len(bodies), err)
	}
	for i, q := range peers {
		if got := drain(q); !bytes.Equal(got, want[i]) {
			t.Errorf("peer %d has %d bytes, which are not the %d of its messages", i, len(got), len(want[i]))
		}
	}
	if _, err := pub.SendBatch(context.Background(), [][]byte{make([]byte, 10), make([]byte, DefaultMaxMessageSize)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large a message: %v", err)
	}
	if n, err := pub.SendBatch(context.Background(), nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

// TestPubSendBatchBlock: a batch that finds no room is not sent, and how much
// was before is told.
func TestPubSendBatchBlock(t *testing.T) {
	t.Parallel()
	pub, peers := fanned(t, 2, Options{SendHWM: 10, FullPolicy: PolicyBlock})
	bodies := make([][]byte, 3)
	for i := range bodies {
		bodies[i] = make([]byte, queue.FullStage/2-100) // two go together
	}
	for range 5 {
		if n, err := pub.SendBatch(queue.NoWait, bodies[:2]); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := pub.SendBatch(queue.NoWait, bodies); n != 0 || !errors.Is(err, ErrWouldBlock) {
		t.Errorf("a full queue: %d, %v", n, err)
	}
	for _, q := range peers {
		drain(q)
		for range 9 {
			q.out.Offer(nil, nil, [][]byte{nil})
		}
	}
	if n, err := pub.SendBatch(queue.NoWait, bodies); n != 2 || !errors.Is(err, ErrWouldBlock) {
		t.Errorf("room for one: %d, %v, want 2 and ErrWouldBlock", n, err)
	}
	for i, q := range peers {
		if n, _ := waiting(q); n != 11 {
			t.Errorf("%d messages are queued for peer %d, want 11", n, i)
		}
	}
}
