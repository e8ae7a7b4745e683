package sockets

import (
	"errors"
	"fmt"
	"testing"

	"clustermap/internal/queue"
)

// These tests of DEALER, ROUTER and PULL correspond to libzmq's tests of the
// specifications of socket types (RFC 28, RFC 30).

func TestLibzmq_spec_dealer_round_robin_out(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const peers = 5
	dealer := bind(t, NewDealer, Options{})
	reps := make([]*Rep, peers)
	for i := range reps {
		reps[i] = open(t, NewRep, Options{})
		must(t, reps[i].Connect(dealer.LastEndpoint()))
	}
	eventually(t, "all are connected", func() bool { return len(dealer.Peers()) == peers })
	for range peers {
		must(t, dealer.Send(ctx, nil, []byte("ABC")))
	}
	for _, rep := range reps {
		m, err := rep.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != "[ABC]" {
			t.Errorf("%q", m)
		}
	}
}

func TestLibzmq_spec_dealer_fair_queue_in(t *testing.T) {
	t.Parallel()
	receiver := bind(t, NewDealer, Options{})
	fairQueueIn(t, receiver.LastEndpoint(), receiver.Peers, func() (string, error) {
		m, err := receiver.TryRecv()
		if err != nil {
			return "", err
		}
		return string(m[0]), nil
	})
}

func TestLibzmq_spec_router_fair_queue_in(t *testing.T) {
	t.Parallel()
	receiver := bind(t, NewRouter, Options{})
	fairQueueIn(t, receiver.LastEndpoint(), receiver.Peers, func() (string, error) {
		m, err := receiver.Recv(queue.NoWait)
		if err != nil {
			return "", err
		}
		return string(m[1]), nil
	})
}

// fairQueueIn queues messages of several DEALERs and expects them in turns.
func fairQueueIn(t *testing.T, endpoint string, stats func() []PeerStats, receive func() (string, error)) {
	t.Helper()
	ctx := testContext(t)
	const peers, each = 4, 5
	for i := range peers {
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect(endpoint))
		for range each {
			must(t, dealer.Send(ctx, fmt.Append(nil, i)))
		}
	}
	eventually(t, "all has come", func() bool { return pending(stats()) == peers*each })
	for range each {
		turn := map[string]bool{}
		for range peers {
			from, err := receive()
			must(t, err)
			turn[from] = true
		}
		if len(turn) != peers {
			t.Errorf("one turn had only %v", turn)
		}
	}
}

func TestLibzmq_spec_dealer_block_on_send_no_peers(t *testing.T) {
	t.Parallel()
	dealer := bind(t, NewDealer, Options{})
	if err := dealer.TrySend([]byte("nobody")); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("without waiting: %v", err)
	}
	short := bind(t, NewDealer, Options{SendTimeout: 1})
	if err := short.Send(testContext(t), []byte("nobody")); !errors.Is(err, ErrTimeout) {
		t.Errorf("with a time-out: %v", err)
	}
}

// TestLibzmq_spec_pushpull_multipart: no part of a message is received if its sender
// ends in the middle.
func TestLibzmq_spec_pushpull_multipart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	pull := bind(t, NewPull, Options{Monitor: seen.Tell})
	dying := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
	dying.Send(wire("whole", "message"), wire("half", "message")[:len("half")+2])
	m, err := pull.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[whole message]" {
		t.Errorf("%q", m)
	}
	dying.Conn.Close()
	seen.Await(t, EventDisconnected)
	dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil).Send(wire("other", "one"))
	m, err = pull.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[other one]" {
		t.Errorf("%q", m)
	}
}
