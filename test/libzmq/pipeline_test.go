package libzmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"clustermap/internal/hooks"
	"clustermap/sockets"
)

// TestLibzmq_pair_tcp: messages there and back, with either side binding.
func TestLibzmq_pair_tcp(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := bind(t, sockets.NewPair, sockets.Options{})
	b := open(t, sockets.NewPair, sockets.Options{})
	must(t, b.Connect(a.LastEndpoint()))
	for i := range 100 {
		for _, ends := range [][2]*sockets.Pair{{a, b}, {b, a}} {
			must(t, ends[0].Send(ctx, fmt.Append(nil, i), nil, make([]byte, i*100)))
			m, err := ends[1].Recv(ctx)
			must(t, err)
			if len(m) != 3 || string(m[0]) != fmt.Sprint(i) || len(m[2]) != i*100 {
				t.Fatalf("%d: %d frames, %q", i, len(m), m[0])
			}
		}
	}
	must(t, hooks.SendWire(ctx, a, wire("in", "wire form"), 1, nil))
	var batch sockets.Batch
	must(t, b.RecvBatch(ctx, &batch))
	if batch.Len() != 1 || string(batch.Message(0)) != string(wire("in", "wire form")) {
		t.Errorf("%q", batch.Message(0))
	}
	batch.Release()
}

// TestLibzmq_spec_pushpull_round_robin_out: a connecting PUSH sends each message
// to the next PULL.
func TestLibzmq_spec_pushpull_round_robin_out(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := open(t, sockets.NewPush, sockets.Options{})
	const peers, turns = 5, 20
	var pulls []*sockets.Pull
	for range peers {
		pulls = append(pulls, bind(t, sockets.NewPull, sockets.Options{}))
		must(t, push.Connect(pulls[len(pulls)-1].LastEndpoint()))
	}
	for i := range peers * turns {
		must(t, push.Send(ctx, fmt.Append(nil, i), []byte("second")))
	}
	for i, pull := range pulls {
		for turn := range turns {
			m, err := pull.Recv(ctx)
			must(t, err)
			if want := fmt.Sprintf("[%d second]", turn*peers+i); fmt.Sprint(texts(m)) != want {
				t.Fatalf("pull %d got %q, want %s", i, m, want)
			}
		}
		if _, err := pull.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
			t.Errorf("one more: %v", err)
		}
	}
}

// TestLibzmq_spec_pushpull_block_on_send_no_peers: without a peer a PUSH waits,
// for as long as it is told to.
func TestLibzmq_spec_pushpull_block_on_send_no_peers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := open(t, sockets.NewPush, sockets.Options{SendTimeout: time.Millisecond})
	if err := push.TrySend([]byte("x")); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("TrySend: %v", err)
	}
	err := push.Send(ctx, []byte("x"))
	var timeout net.Error
	if !errors.Is(err, sockets.ErrTimeout) || !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("Send: %v", err)
	}
	if n, err := push.SendBatch(ctx, [][]byte{{1}, {2}}); n != 0 || !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("SendBatch: %d, %v", n, err)
	}
	if err := hooks.SendWire(ctx, push, wire("x"), 1, nil); !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("SendWire: %v", err)
	}
	never := open(t, sockets.NewPush, sockets.Options{SendTimeout: sockets.NoWait})
	if err := never.Send(ctx, []byte("x")); !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("Send with a negative limit: %v", err)
	}
	if err := never.TrySend([]byte("x")); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("TrySend with a negative limit: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	patient := open(t, sockets.NewPush, sockets.Options{})
	if err := patient.Send(ended, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Send with a context that has ended: %v", err)
	}
}

// TestLibzmq_timeo: a receive call that waits gives up in time.
func TestLibzmq_timeo(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, sockets.NewPull, sockets.Options{RecvTimeout: time.Millisecond})
	var b sockets.Batch
	if _, err := pull.Recv(ctx); !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("Recv: %v", err)
	}
	if err := pull.RecvBatch(ctx, &b); !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("RecvBatch: %v", err)
	}
	never := bind(t, sockets.NewPull, sockets.Options{RecvTimeout: sockets.NoWait})
	if _, err := never.Recv(ctx); !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("Recv with a negative limit: %v", err)
	}
	if _, err := never.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("TryRecv: %v", err)
	}
	// A limit that is long enough does no harm.
	patient := bind(t, sockets.NewPull, sockets.Options{RecvTimeout: hang})
	push := open(t, sockets.NewPush, sockets.Options{SendTimeout: hang})
	got := make(chan error)
	go func() {
		_, err := patient.Recv(ctx)
		got <- err
	}()
	must(t, push.Connect(patient.LastEndpoint()))
	must(t, push.Send(ctx, []byte("x")))
	must(t, <-got)
}

// TestLibzmq_spec_pushpull_destroy_queue_on_disconnect: messages that a bound PUSH has
// queued for a peer go with that peer.
func TestLibzmq_spec_pushpull_destroy_queue_on_disconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	push := bind(t, sockets.NewPush, sockets.Options{Monitor: seen.Tell, Linger: sockets.LingerNone})
	r := dialRaw(t, push.LastEndpoint()).Greet("PULL", nil)
	must(t, push.Send(ctx, plug))
	eventually(t, "the plug is taken", func() bool { return push.Peers()[0].QueuedMessages == 0 })
	must(t, push.Send(ctx, []byte("lost")))
	r.Conn.Close()
	seen.Await(t, sockets.EventDisconnected)
	if err := push.TrySend([]byte("nobody")); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("without a peer: %v", err)
	}
	again := dialRaw(t, push.LastEndpoint()).Greet("PULL", nil)
	must(t, push.Send(ctx, []byte("kept")))
	if m := again.Message(); string(m[0]) != "kept" {
		t.Errorf("%.10q came", m[0])
	}
}

// TestLibzmq_spec_pushpull_disconnect: Disconnect destroys the queues of both
// sides: messages that the PULL had received, and those that the PUSH had not sent yet.
func TestLibzmq_spec_pushpull_disconnect(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"inproc://" + t.Name(), anyPort} {
		push := open(t, sockets.NewPush, sockets.Options{SendHWM: 1, Linger: sockets.LingerNone})
		must(t, push.Bind(testContext(t), endpoint))
		pull := open(t, sockets.NewPull, sockets.Options{RecvHWM: 1, Linger: sockets.LingerNone})
		for range 3 {
			must(t, pull.Connect(push.LastEndpoint()))
			says(t, push, "ABC", "DEF")
			readable(t, pull)
			must(t, pull.Disconnect(push.LastEndpoint()))
			if m, err := pull.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
				t.Errorf("after Disconnect %q came, %v", m, err)
			}
			eventually(t, "the PUSH has no peer", func() bool { return len(push.Peers()) == 0 })
			if err := push.TrySend([]byte("nobody")); !errors.Is(err, sockets.ErrWouldBlock) {
				t.Errorf("without a peer: %v", err)
			}
			must(t, pull.Connect(push.LastEndpoint()))
			says(t, push, "new")
			wants(t, pull, "new")
			must(t, pull.Disconnect(push.LastEndpoint()))
			eventually(t, "the PUSH has no peer", func() bool { return len(push.Peers()) == 0 })
		}
	}
}

// These tests of DEALER, ROUTER and PULL correspond to libzmq's tests of the
// specifications of socket types (RFC 28, RFC 30).

func TestLibzmq_spec_dealer_block_on_send_no_peers(t *testing.T) {
	t.Parallel()
	dealer := bind(t, sockets.NewDealer, sockets.Options{})
	if err := dealer.TrySend([]byte("nobody")); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("without waiting: %v", err)
	}
	short := bind(t, sockets.NewDealer, sockets.Options{SendTimeout: 1})
	if err := short.Send(testContext(t), []byte("nobody")); !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("with a time-out: %v", err)
	}
}

// TestLibzmq_spec_pushpull_multipart: no part of a message is received if its sender
// ends in the middle.
func TestLibzmq_spec_pushpull_multipart(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	pull := bind(t, sockets.NewPull, sockets.Options{Monitor: seen.Tell})
	dying := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
	dying.Send(wire("whole", "message"), wire("half", "message")[:len("half")+2])
	wants(t, pull, "whole message")
	dying.Conn.Close()
	seen.Await(t, sockets.EventDisconnected)
	dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil).Send(wire("other", "one"))
	wants(t, pull, "other one")
}
