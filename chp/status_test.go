package chp

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/version"
	"clustermap/sockets"
)

// A server tells how it is, to its own program and over the network, also with
// CURVE.
func TestServerStatus(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	serverCurve, clientCurve := curve()
	s := startServer(t, ServerOptions{Security: serverCurve})
	endpoint := s.Endpoints().Snapshot
	c, err := NewClient(ClientOptions{Servers: []string{endpoint}, Security: clientCurve, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.WaitActive(ctx))
	sequence, err := c.SetSync(ctx, "/k", []byte("value"))
	must(t, err)
	eventually(t, "the client's snapshot is counted", func() bool { return s.Status().SnapshotBytes > 0 })
	st, err := ServerStatus(ctx, endpoint, clientCurve)
	must(t, err)
	if st.MemoryBytes < 1<<20 || st.MapBytes < 7 || st.UptimeSeconds < 0 {
		t.Errorf("%+v", st)
	}
	want := Status{Endpoint: endpoint, Version: version.String(), Role: RoleAlone, State: ServerActive, Sequence: sequence, Keys: 1, Clients: 1,
		MemoryBytes: st.MemoryBytes, MapBytes: st.MapBytes, UptimeSeconds: st.UptimeSeconds}
	want.SnapshotBytes, want.EncodedBytes = st.SnapshotBytes, st.EncodedBytes
	if st.SnapshotBytes == 0 || st.EncodedBytes == 0 {
		t.Error("the client's snapshot is not counted")
	}
	if st != want {
		t.Errorf("asked: %+v\nwant %+v", st, want)
	}
	here := s.Status()
	here.MemoryBytes, here.UptimeSeconds = want.MemoryBytes, want.UptimeSeconds
	if here != want {
		t.Errorf("in the program: %+v\nwant %+v", here, want)
	}
	must(t, c.Close())
	eventually(t, "the client is no longer counted", func() bool { return s.Status().Clients == 0 })
	if _, err := ServerStatus(ctx, endpoint, sockets.Security{}); err == nil {
		t.Error("a server with CURVE answered without it")
	}
}

// Servers of Clone models with snapshots answer too.
func TestServerStatusModel(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{Model: 2})
	st, err := ServerStatus(testContext(t), s.Endpoints().Snapshot, sockets.Security{})
	must(t, err)
	if st.State != ServerActive || st.Role != RoleAlone {
		t.Errorf("%+v", st)
	}
}

// Programs read the fields by their names in JSON.
func TestStatusNames(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Status{})
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(text, &fields))
	for _, name := range []string{"endpoint", "version", "role", "state", "epoch", "sequence", "keys", "clients", "peer", "peer_error", "lag", "memory_bytes", "map_bytes", "refused", "bad_asks", "takes_over", "uptime_seconds"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is missing in %s", name, text)
		}
	}
	if st := newUnserved(t).Status(); st.State != ServerWaiting || st.UptimeSeconds != 0 || st.Endpoint != "" {
		t.Errorf("a server that does not serve: %+v", st)
	}
}

func newUnserved(t *testing.T) *Server {
	t.Helper()
	s, err := NewServer(ServerOptions{Logger: quiet()})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// A client that does not announce itself is not answered, and neither is an invalid
// question; snapshots go on meanwhile. A server of another make is not asked, because the
// guide's servers end at an unknown request.
func TestServerStatusOfOthers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := newPlainClient(t, s)
	must(t, c.dealer.Send(ctx, []byte(wire.AskStatus)))
	must(t, c.dealer.Send(ctx, []byte(wire.AskHandover)))
	if pairs, end := c.snapshot(""); len(pairs) != 0 || end.key != kvmsg.KeyKTHXBAI {
		t.Errorf("%v, %v", pairs, end)
	}
	if n := s.Stats().BadAsks; n != 2 {
		t.Errorf("%d requests refused, want 2", n)
	}
	if st, err := ServerStatus(ctx, s.Endpoints().Snapshot, sockets.Security{}); err != nil || st.BadAsks != 2 {
		t.Errorf("the status has %d requests refused, want 2; %v", st.BadAsks, err)
	}

	other := newScripted(t, asPlain)
	if _, err := ServerStatus(ctx, other.name(), sockets.Security{}); !errors.Is(err, ErrNoStatus) {
		t.Errorf("ServerStatus: %v, want ErrNoStatus", err)
	}
	if err := Failover(ctx, other.name(), sockets.Security{}); !errors.Is(err, ErrNoStatus) {
		t.Errorf("Failover: %v, want ErrNoStatus", err)
	}
	other.nobodyAsks()

	dead := newScripted(t, asOurs)
	dead.close()
	if _, err := ServerStatus(ctx, dead.name(), sockets.Security{}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := ServerStatus(ctx, "localhost", sockets.Security{}); err == nil {
		t.Error("an address without a port was taken")
	}
}

// The context ends the wait for a server that does not answer. Other messages are no
// answer.
func TestServerStatusSilent(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	ctx, cancel := context.WithCancel(testContext(t))
	result := make(chan error, 1)
	go func() {
		_, err := ServerStatus(ctx, s.name(), sockets.Security{})
		result <- err
	}()
	m, err := s.router.Recv(s.ctx)
	must(t, err)
	if len(m) != 2 || string(m[1]) != wire.AskStatus {
		t.Fatalf("the question is %q", m)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}

	go func() {
		_, err := ServerStatus(s.ctx, s.name(), sockets.Security{})
		result <- err
	}()
	m, err = s.router.Recv(s.ctx)
	must(t, err)
	must(t, s.router.Send(s.ctx, m[0], []byte("STANDBY")))
	must(t, s.router.Send(s.ctx, m[0], []byte("OTHER"), []byte("{}")))
	must(t, s.router.Send(s.ctx, m[0], []byte(wire.AnswerStatus), []byte("{")))
	if err := <-result; !errors.Is(err, follow.ErrNotCHP) {
		t.Errorf("an answer that is not JSON: %v", err)
	}
}

// A server that is not one of a pair says so when it is to hand over.
func TestFailoverAlone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	for range 2 {
		err := Failover(ctx, s.Endpoints().Snapshot, sockets.Security{})
		if refusal := (*HandoverError)(nil); !errors.As(err, &refusal) || refusal.Reason != errNotOfPair.Error() {
			t.Errorf("%v", err)
		}
	}
}

// Only one handover is under way at a time, and the end of the server ends it.
func TestOneHandover(t *testing.T) {
	t.Parallel()
	var h handovers
	ctx, cancel := context.WithCancel(testContext(t))
	outcome := make(chan error, 1)
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	if !h.begin(ctx, wait, func(err error) { outcome <- err }) {
		t.Fatal("the first one did not begin")
	}
	if h.begin(ctx, wait, nil) {
		t.Error("two are under way")
	}
	cancel()
	if err := <-outcome; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if !h.begin(ctx, wait, func(err error) { outcome <- err }) {
		t.Error("none begins after the first one")
	}
	h.running.Wait()
}

// A server that does not serve, but would if a client asked, says so: the passive one of
// a pair whose active one is gone, and a primary that is alone, but not a backup that has
// not heard its primary.
func TestStatusTakesOver(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the backup has a copy", primary.inSync)
	if primary.Status().TakesOver {
		t.Error("an active server would take over")
	}
	primary.crash()
	eventually(t, "the passive server would take over", func() bool { return backup.Status().TakesOver })
	if got := backup.Status().State; got != ServerPassive {
		t.Errorf("it is %s though no client has asked", got)
	}
	backup.stop()

	primary = startAlone(t, po)
	eventually(t, "a primary that is alone would take over", func() bool { return primary.Status().TakesOver })
	primary.stop()
	backup = startAlone(t, bo)
	ready := time.Now()
	eventually(t, "the primary is silent", func() bool { return time.Since(ready) > bo.Pair.Timeout })
	if backup.Status().TakesOver {
		t.Error("a backup that has not heard its primary would take over")
	}
}
