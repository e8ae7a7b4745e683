package chp

import (
	"encoding/json"
	"errors"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// A client connects anew before the former connection is gone, and gives up one of
// several attempts to connect. The server must tell it of refusals on the
// connection that belongs to the one the updates come from, however the others
// come and go: otherwise a SetSync waits for ever.
func TestRefusalAfterAnotherAttempt(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{MaxValueSize: 1000})
	c, err := NewClient(ClientOptions{Servers: []string{server.Endpoints().Snapshot}, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	_, err = c.SetSync(ctx, "k", []byte("1"))
	must(t, err)

	members := func() int {
		server.members.mu.Lock()
		defer server.members.mu.Unlock()
		return server.members.byID[c.id].connections
	}
	before := members()
	other, err := sockets.NewDealer(sockets.Options{Metadata: map[string]string{
		"X-CHP": "clustermap/1", "X-CHP-Client": c.id, "X-CHP-Generation": "1000",
	}})
	must(t, err)
	must(t, other.Connect(server.Endpoints().Snapshot))
	eventually(t, "the other attempt is there", func() bool { return members() == before+1 })
	forgetLimit(c)
	if _, err := c.SetSync(ctx, "k", make([]byte, 1001)); !errors.Is(err, ErrRefused) {
		t.Errorf("while the other attempt is there: %v, want ErrRefused", err)
	}
	must(t, other.Close())
	eventually(t, "the other attempt has gone", func() bool { return members() == before })
	if _, err := c.SetSync(ctx, "k", make([]byte, 1001)); !errors.Is(err, ErrRefused) {
		t.Errorf("after the other attempt has gone: %v, want ErrRefused", err)
	}
}

// A client that sends a great many updates which are all refused gets every refusal, and
// is not disconnected for the number of its refusals.
func TestManyRefusals(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{MaxMapBytes: 200})
	c, err := NewClient(ClientOptions{Servers: []string{server.Endpoints().Snapshot}, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	const n = 100_000
	for range n {
		must(t, c.Set(ctx, "l", make([]byte, 200)))
	}
	if err := c.Flush(ctx); !errors.Is(err, ErrRefused) || errors.Is(err, ErrUncertain) {
		t.Errorf("Flush: %v, want ErrRefused alone", err)
	}
	if got := server.Stats().Refused[ReasonMapFull]; got != n {
		t.Errorf("%d updates refused, want %d", got, n)
	}
	if got := c.Stats().Syncs; got != 1 {
		t.Errorf("%d snapshots, want 1: the client was disconnected", got)
	}
}

// The refusals kept for a client that does not read them are bounded: beyond the
// bound the client is disconnected, and the memory is given back.
func TestTellerIsBounded(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	router, err := sockets.NewRouter(sockets.Options{SendHWM: -1, SendHWMBytes: 1 << 10, SendBuffer: 4 << 10, Monitor: func(e sockets.Event) {
		if e.Kind == sockets.EventDisconnected {
			close(gone)
		}
	}})
	must(t, err)
	must(t, router.Bind(testContext(t), "tcp://127.0.0.1:*"))
	dealer, err := sockets.NewDealer(sockets.Options{
		RecvHWM: 1, RecvHWMBytes: 1, RecvBuffer: 4 << 10, ReconnectInterval: -1, Linger: sockets.LingerNone,
	})
	must(t, err)
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(testContext(t), []byte("hello")))
	var b sockets.Batch
	must(t, router.RecvBatch(testContext(t), &b))
	peer := b.Peer()
	b.Release()

	notifier := newNotifier(router, nil, hang)
	n := refusalNotice{peer: peer, messages: 1000}
	for range n.messages {
		n.wire = wire.AppendRefusal(n.wire, make([]byte, kvmsg.UUIDSize), ReasonMapFull)
	}
	owed := func() int {
		notifier.mu.Lock()
		defer notifier.mu.Unlock()
		return notifier.bytes
	}
	// The kernel takes some megabytes on loopback as well.
	for i := 0; i < 10_000; i++ {
		select {
		case <-gone:
			i = 10_000
		default:
			notifier.notify(&n)
			if got := owed(); got > maxOwed+len(n.wire)+notifyPortion*30 {
				t.Fatalf("%d bytes are kept", got)
			}
		}
	}
	select {
	case <-gone:
	case <-testContext(t).Done():
		t.Error("the client was not disconnected")
	}
	eventually(t, "nothing is kept any more", func() bool { return owed() == 0 })
	notifier.close()
	must(t, router.Close())
	must(t, dealer.Close())
}

// A status counts the updates that the server has refused, by reason, also those of a
// publisher that hears nothing. A reason that is not known here, and a server of an
// earlier version, are no errors.
func TestStatusOfRefusals(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	pub, err := sockets.NewPub(sockets.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, pub.Close()) })
	must(t, pub.Connect(server.Endpoints().Collector))
	must(t, pub.WaitSubscribers(ctx, "", 1))
	zero := make([]byte, 8)
	must(t, pub.Send(ctx, []byte("/client/c"), zero, nil, []byte("ttl=2"), []byte("no newline")))
	must(t, pub.Send(ctx, []byte("/client/c"), zero, nil, []byte("ttl=2"), []byte("no newline")))
	must(t, pub.Send(ctx, []byte("HUGZ"), zero, nil, nil, []byte("v")))
	want := RefusalCounts{ReasonProperties: 2, ReasonReservedKey: 1}
	eventually(t, "the refusals are counted", func() bool { return server.Status().Refused == want })
	st, err := ServerStatus(ctx, server.Endpoints().Snapshot, sockets.Security{})
	must(t, err)
	if st.Refused != want || want.Total() != 3 {
		t.Errorf("asked: %v, want %v", st.Refused, want)
	}
	text, err := json.Marshal(st.Refused)
	must(t, err)
	if got, want := string(text), `{"properties":2,"reserved_key":1}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for text, want := range map[string]RefusalCounts{
		`{}`: {}, `{"refused":null}`: {}, `{"refused":{"value_too_large":7,"of a later version":1}}`: {ReasonValueTooLarge: 7},
	} {
		var st Status
		if err := json.Unmarshal([]byte(text), &st); err != nil || st.Refused != want {
			t.Errorf("%s: %v, %v", text, st.Refused, err)
		}
	}
}
