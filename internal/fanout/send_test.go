package fanout

import (
	"bytes"
	"errors"
	"testing"

	"clustermap/internal/queue"
)

// TestFanOut: all peers get the same bytes, small messages and large ones, and
// those that are shared are given back when the last one is done.
func TestFanOut(t *testing.T) {
	t.Parallel()
	pub, peers := fanned(t, 3, Settings{})
	var want []byte
	for _, message := range [][]string{{"a"}, {"b", ""}, {"c", string(make([]byte, queue.LendFrom))}, {""}, {string(make([]byte, 300))}} {
		frames := make([][]byte, len(message))
		for i, f := range message {
			frames[i] = []byte(f)
		}
		must(t, send(pub, frames...))
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
	pub, peers := fanned(t, 3, Settings{Limits: unlimited(mark), Policy: Block})
	counts := func() (n [3]int) {
		for i, q := range peers {
			n[i], _ = waiting(q)
		}
		return n
	}
	fill := func() (sent int) {
		for {
			switch err := send(pub, []byte("m")); {
			case err == nil:
				sent++
			case errors.Is(err, queue.ErrWouldBlock):
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
	must(t, send(pub, []byte("m")))
	must(t, sendWire(pub, bytes.Repeat(wire("m"), 4), 4, nil))
	pub.Lock()
	pub.sendAlone(peers[0], [][]byte{[]byte("m")})
	pub.Unlock()
	if n := fill(); n != mark-6 || counts() != [3]int{mark, mark - 1, mark - 1} {
		t.Errorf("%d messages were sent, and %v are queued, want %d more and %d for the first", n, counts(), mark-6, mark)
	}
}

// TestFanOutDrop: a full peer does not keep the others from a message.
func TestFanOutDrop(t *testing.T) {
	t.Parallel()
	pub, peers := fanned(t, 2, Settings{Limits: unlimited(2)})
	for range 2 {
		must(t, send(pub, []byte("m")))
	}
	drain(peers[0])
	must(t, send(pub, []byte("m")))
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
	pub, peers := fanned(t, 4, Settings{Limits: unlimited(queue.Unbounded)})
	for i, topic := range []string{"a", "b"} {
		pub.Lock()
		pub.cancel(peers[i], nil)
		_, err := pub.subscribe(peers[i], []byte(topic), queue.Unbounded)
		pub.Unlock()
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
	n, err := sendBatch(pub, bodies)
	if err != nil || n != len(bodies) {
		t.Fatalf("%d of %d were sent: %v", n, len(bodies), err)
	}
	for i, q := range peers {
		if got := drain(q); !bytes.Equal(got, want[i]) {
			t.Errorf("peer %d has %d bytes, which are not the %d of its messages", i, len(got), len(want[i]))
		}
	}
	if n, err := sendBatch(pub, nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

// TestPubSendBatchBlock: a batch that finds no room is not sent, and how much
// was before is told.
func TestPubSendBatchBlock(t *testing.T) {
	t.Parallel()
	pub, peers := fanned(t, 2, Settings{Limits: unlimited(10), Policy: Block})
	bodies := make([][]byte, 3)
	for i := range bodies {
		bodies[i] = make([]byte, queue.FullStage/2-100) // two go together
	}
	for range 5 {
		if n, err := sendBatch(pub, bodies[:2]); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := sendBatch(pub, bodies); n != 0 || !errors.Is(err, queue.ErrWouldBlock) {
		t.Errorf("a full queue: %d, %v", n, err)
	}
	for _, q := range peers {
		drain(q)
		for range 9 {
			q.out.Offer(nil, nil, [][]byte{nil})
		}
	}
	if n, err := sendBatch(pub, bodies); n != 2 || !errors.Is(err, queue.ErrWouldBlock) {
		t.Errorf("room for one: %d, %v, want 2 and queue.ErrWouldBlock", n, err)
	}
	for i, q := range peers {
		if n, _ := waiting(q); n != 11 {
			t.Errorf("%d messages are queued for peer %d, want 11", n, i)
		}
	}
}
