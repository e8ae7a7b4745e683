package chp

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

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

	id := slices.Collect(maps.Keys(server.members.Known()))[0]
	members := func() int { return server.members.Known()[id] }
	before := members()
	other, err := sockets.NewDealer(sockets.Options{Metadata: map[string]string{
		"X-CHP": "clustermap/1", "X-CHP-Client": id, "X-CHP-Generation": "1000",
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
