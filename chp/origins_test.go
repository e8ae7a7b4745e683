package chp

import (
	"encoding/binary"
	"strings"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// Only a client that announces that it numbers its updates is believed to: others may
// have anything in the sequence field. A client that breaks the order does not harm
// others.
func TestOnlyNumberingClientsAreNumbered(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := newPlainClient(t, server)
	send := func(metadata map[string]string, numbers ...uint64) {
		p, err := sockets.NewPub(sockets.Options{Metadata: metadata, FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, Linger: hang})
		must(t, err)
		must(t, p.Connect(server.Endpoints().Collector))
		for _, n := range numbers {
			must(t, p.Send(ctx, []byte("k"), binary.BigEndian.AppendUint64(nil, n), make([]byte, kvmsg.UUIDSize), nil, binary.BigEndian.AppendUint64(nil, n)))
		}
		must(t, p.Close())
	}
	want := func(numbers ...uint64) {
		t.Helper()
		for _, n := range numbers {
			if m := c.next(); binary.BigEndian.Uint64([]byte(m.value)) != n {
				t.Fatalf("got %q, want %d", m.value, n)
			}
		}
	}
	send(nil, 5, 5, 4)
	want(5, 5, 4)
	member := func() map[string]string {
		return map[string]string{"X-CHP": "clustermap/1", "X-CHP-Client": wire.NewID(), "X-CHP-Generation": "1"}
	}
	send(member(), 5, 5, 4) // an older client of ours
	want(5, 5, 4)
	hostile, honest := member(), member()
	hostile["X-CHP-Order"], honest["X-CHP-Order"] = "0", "0"
	send(hostile, 1<<63)
	want(1 << 63)
	send(hostile, 1, 2)
	send(honest, 1, 2, 3)
	want(1, 2, 3)
	for _, id := range []string{"not hexadecimal, and 32 bytes ..."[:32], "ab", strings.Repeat("ab", 32)} {
		hostile["X-CHP-Client"] = id
		send(hostile, 2, 1)
		want(2, 1)
	}
}

// A client asks for the replies that it needs, if it has announced that it does. One that has
// not gets a reply to each batch.
func TestRepliesAskedAndUnasked(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	others := newPlainClient(t, server)
	for announced, first := range map[string]uint64{"1": 1, "2": 2} {
		metadata := map[string]string{
			"X-CHP": "clustermap/1", "X-CHP-Client": wire.NewID(), "X-CHP-Generation": "1",
			"X-CHP-Order": "0", "X-CHP-Replies": announced,
		}
		replies, err := sockets.NewDealer(sockets.Options{Metadata: metadata, Linger: sockets.LingerNone})
		must(t, err)
		defer replies.Close()
		must(t, replies.Connect(server.Endpoints().Snapshot))
		must(t, replies.Send(ctx, []byte("ICANHAZ?"), nil))
		for joined := false; !joined; {
			m, err := replies.Recv(ctx)
			must(t, err)
			joined = string(m[0]) == "KTHXBAI"
		}
		updates, err := sockets.NewPub(sockets.Options{Metadata: metadata, FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, Linger: hang})
		must(t, err)
		defer updates.Close()
		must(t, updates.Connect(server.Endpoints().Collector))
		for n := uint64(1); n <= 2; n++ {
			number := binary.BigEndian.AppendUint64(nil, n)
			must(t, updates.Send(ctx, []byte("k"), number, make([]byte, kvmsg.UUIDSize), nil, number))
			others.next() // so the next one is in another batch
		}
		must(t, updates.Send(ctx, []byte("APPLIED?")))
		reply, err := replies.Recv(ctx)
		must(t, err)
		if len(reply) != 6 || string(reply[0]) != "APPLIED" || binary.BigEndian.Uint64(reply[2]) != first {
			t.Errorf("announced %s: the first reply is %q, want one up to number %d", announced, reply, first)
		}
	}
}

func TestAllocExactSet(t *testing.T) {
	ctx := testContext(t)
	server := startServer(t, ServerOptions{HeartbeatInterval: hang})
	c := startClient(t, server, ClientOptions{})
	value := []byte("some value")
	const batch = 1000
	round := func() {
		before := c.Sequence()
		for range batch {
			if err := c.Set(ctx, "/some/key", value); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "all have come back", func() bool { return c.Sequence() >= before+batch })
	}
	if n := testenv.Allocs(100, 50, round); n > batch/10 {
		t.Errorf("%v allocations for %d updates", n, batch)
	}
}
