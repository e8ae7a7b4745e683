package chp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// refusedWith returns the reason why a server does not hand over.
func refusedWith(t testing.TB, server string, security sockets.Security) string {
	t.Helper()
	err := Failover(testContext(t), server, security)
	refusal := (*HandoverError)(nil)
	if !errors.As(err, &refusal) {
		t.Fatalf("the server does not refuse to hand over: %v", err)
	}
	return refusal.Reason
}

// With CURVE a client that may read and write may not make the server hand over. The
// owners of the server's own key and of the keys for administrators may.
func TestOnlyAdministratorsHandOver(t *testing.T) {
	t.Parallel()
	server, admin, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	o := ServerOptions{
		Security: sockets.Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: sockets.AllowKeys(server.Public, admin.Public, client.Public)},
		Admins:   []zmtp.PublicKey{admin.Public},
	}
	s := startServer(t, o)
	o.AdminAnywhere = true
	anywhere := startServer(t, o)
	as := func(k zmtp.KeyPair) sockets.Security {
		return sockets.Security{CurveSecretKey: k.Secret, CurveServerKey: server.Public}
	}
	for name, c := range map[string]struct {
		at   *Server
		key  zmtp.KeyPair
		want error
	}{
		"a client":                             {s, client, errNotAdmin},
		"an administrator":                     {s, admin, errNotOfPair},
		"the server's own key":                 {s, server, errNotOfPair},
		"a client of a server that trusts all": {anywhere, client, errNotOfPair},
	} {
		if got := refusedWith(t, c.at.Endpoints().Snapshot, as(c.key)); got != c.want.Error() {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Without CURVE a client on another machine may not make the server hand over. One on
// this machine may, by tcp or ipc.
func TestOnlyThisMachineHandsOverWithoutCURVE(t *testing.T) {
	t.Parallel()
	o := ServerOptions{Endpoints: []string{"tcp://127.0.0.1:*", "ipc://*"}}
	s := startServer(t, o)
	for _, e := range s.AllEndpoints() {
		if got := refusedWith(t, e.Snapshot, sockets.Security{}); got != errNotOfPair.Error() {
			t.Errorf("by %s: %q", e.Snapshot, got)
		}
	}
	elsewhere := func(string) bool { return false }
	start := func(o ServerOptions) *Server {
		o.Logger = quiet()
		s, err := NewServer(o)
		must(t, err)
		s.admins.local = elsewhere
		return servePair(t, s).Server
	}
	far, open := start(ServerOptions{}), start(ServerOptions{AdminAnywhere: true})
	if got := refusedWith(t, far.Endpoints().Snapshot, sockets.Security{}); got != errNotLocal.Error() {
		t.Errorf("from another machine: %q", got)
	}
	if got := refusedWith(t, open.Endpoints().Snapshot, sockets.Security{}); got != errNotOfPair.Error() {
		t.Errorf("from another machine, which is allowed: %q", got)
	}
}

// A server that has just taken over does not hand back at once at a request, so that no
// client can send all others to and fro. Both servers log who asked, and do not repeat it.
func TestHandoverRestsAndNamesTheRequester(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	po.Pair.Timeout, bo.Pair.Timeout = time.Hour, time.Hour // no server rests enough
	var told [2]lockedLog
	po.Logger, bo.Logger = told[0].logger(), told[1].logger()
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the primary is active", primary.active)
	eventually(t, "the backup follows", primary.inSync)
	must(t, Failover(ctx, bo.Pair.Peer, sockets.Security{}))
	eventually(t, "the backup is active", backup.active)
	eventually(t, "the primary follows", backup.inSync)
	for range 100 {
		if reason := refusedWith(t, po.Pair.Peer, sockets.Security{}); !strings.Contains(reason, "it hands over again in 1h59m") {
			t.Fatalf("a second handover: %q", reason)
		}
	}
	if !backup.active() {
		t.Error("the backup has handed over")
	}
	primary.stop()
	backup.stop()
	for i, want := range []string{`"hands over at the request of a client" by.remote=127.0.0.1:`, `handed_over_by=127.0.0.1:`} {
		if text := told[i].String(); !strings.Contains(text, want) {
			t.Errorf("server %d does not log %s:\n%s", i, want, text)
		}
	}
	if text := told[1].String(); !strings.Contains(text, `"does not hand over" by.remote=127.0.0.1:`) {
		t.Errorf("the refusal is not in the log:\n%s", text)
	} else if n := strings.Count(text, "does not hand over"); n > 5 { // more than one on a very slow machine only
		t.Errorf("%d lines about refusals:\n%s", n, text)
	}
}
