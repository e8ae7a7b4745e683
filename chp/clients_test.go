package chp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// The server knows of each client who it is, where from, what it gets and what it has sent; over
// the network as in its program.
func TestClientsAreListed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server, named := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	s := startServer(t, ServerOptions{Security: sockets.Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: sockets.AllowKeys(server.Public, named.Public)}})
	as := func(k zmtp.KeyPair) sockets.Security {
		return sockets.Security{CurveSecretKey: k.Secret, CurveServerKey: server.Public}
	}
	c, err := NewClient(ClientOptions{Servers: []string{s.Endpoints().Snapshot}, Security: as(named), Subtrees: []string{"/b/", "/a/", "/c/one"}})
	must(t, err)
	defer c.Close()
	must(t, c.WaitActive(ctx))
	for range 5 {
		_, err := c.SetSync(ctx, "/a/k", []byte("v"))
		must(t, err)
	}
	var got ClientInfo
	// What is written is counted afterwards: the client may have it already.
	eventually(t, "it has sent 5 updates and got them", func() bool {
		all, err := ServerClients(ctx, s.Endpoints().Snapshot, as(server))
		must(t, err)
		if len(all) != 1 {
			t.Fatalf("%d clients, want 1: %+v", len(all), all)
		}
		got = all[0]
		return got.Received >= 5 && got.Sent >= 5
	})
	if got.Name != named.Public.String() || len(got.ID) != 32 || !strings.HasPrefix(got.Remote, "127.0.0.1:") || got.Endpoint == "" || got.MoreSubtrees != 0 || got.Since.IsZero() {
		t.Errorf("%+v", got)
	}
	if want := []string{"/a/", "/b/", "/c/one"}; !slices.Equal(got.Subtrees, want) {
		t.Errorf("subtrees %q, want %q", got.Subtrees, want)
	}
	here := slices.Collect(s.Clients())
	if len(here) != 1 || here[0].ID != got.ID || here[0].Remote != got.Remote || !here[0].Since.Equal(got.Since) {
		t.Errorf("in the program: %+v", here)
	}
	must(t, c.Close())
	eventually(t, "the client is gone", func() bool { return len(slices.Collect(s.Clients())) == 0 })
}

// Any number of clients is listed, each once, in the order in which they came, with topics that fill
// an answer; the list says how many subtrees it leaves out.
func TestClientsAreListedInPortions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	const many = clientsAtATime + 20
	for range many {
		c, err := sockets.NewSub(sockets.Options{Linger: sockets.LingerNone})
		must(t, err)
		defer c.Close()
		must(t, c.Connect(s.Endpoints().Publisher))
		for i := range mostSubtrees + 3 {
			must(t, c.Subscribe(string(rune('a'+i))+strings.Repeat("\x01", 254))) // six times as long in JSON
		}
		must(t, c.WaitSubscribed(ctx))
	}
	all, err := ServerClients(ctx, s.Endpoints().Snapshot, sockets.Security{})
	must(t, err)
	if len(all) != many {
		t.Fatalf("%d clients, want %d", len(all), many)
	}
	for i, c := range all {
		if len(c.Subtrees) != mostSubtrees || c.MoreSubtrees != 3 || c.Received != -1 || c.ID != "" {
			t.Fatalf("%+v", c)
		}
		if i > 0 && c.Since.Before(all[i-1].Since) {
			t.Errorf("%v came before %v", c.Since, all[i-1].Since)
		}
	}
}

// Who may not make the server hand over may neither list the clients nor disconnect them.
func TestOnlyAdministratorsListAndKick(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	s := startServer(t, ServerOptions{Security: sockets.Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: sockets.AllowKeys(client.Public)}})
	security := sockets.Security{CurveSecretKey: client.Secret, CurveServerKey: server.Public}
	c, err := NewClient(ClientOptions{Servers: []string{s.Endpoints().Snapshot}, Security: security})
	must(t, err)
	defer c.Close()
	must(t, c.WaitActive(ctx))
	var refusal *AdminError
	if all, err := ServerClients(ctx, s.Endpoints().Snapshot, security); !errors.As(err, &refusal) || refusal.Reason != errNotAdmin.Error() || all != nil {
		t.Errorf("%v, %v", all, err)
	}
	if n, err := Kick(ctx, s.Endpoints().Snapshot, client.Public.String(), security); !errors.As(err, &refusal) || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if got := c.Stats(); got.State != StateActive || got.Syncs != 1 {
		t.Errorf("%+v", got)
	}
}

// Whoever lists the clients does not get their identities, with which one could send updates as one of them.
func TestClientsAreListedWithoutTheirIdentities(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	_, err := c.SetSync(ctx, "/k", []byte("v"))
	must(t, err)
	all, err := ServerClients(ctx, s.Endpoints().Snapshot, sockets.Security{})
	must(t, err)
	known := s.members.Known()
	if len(all) != 1 || len(known) != 1 || all[0].ID == "" {
		t.Fatalf("%+v, %v", all, known)
	}
	for id := range known {
		if text := fmt.Sprintf("%+v", all); strings.Contains(text, id) {
			t.Errorf("%s has the identity %s", text, id)
		}
		if n := s.Kick(id); n != 0 {
			t.Errorf("the identity names %d clients", n)
		}
	}
}

// A client that is disconnected comes back with all that it has missed, and others notice nothing.
func TestKickedClientComesBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	lost := make(chan error, 16)
	links := make(chan LinkEvent, 16)
	one, err := NewClient(ClientOptions{Servers: []string{s.Endpoints().Snapshot}, OnLink: func(e LinkEvent) { links <- e }})
	must(t, err)
	defer one.Close()
	other, err := NewClient(ClientOptions{Servers: []string{s.Endpoints().Snapshot}, OnLink: func(e LinkEvent) {
		if e.Kind == LinkLost {
			lost <- e.Err
		}
	}})
	must(t, err)
	defer other.Close()
	must(t, one.WaitActive(ctx))
	must(t, other.WaitActive(ctx))
	_, err = one.SetSync(ctx, "/mine", []byte("1"))
	must(t, err)
	var at ClientInfo
	for c := range s.Clients() {
		if c.Received > 0 {
			at = c
		}
	}
	if e := <-links; e.Kind != LinkConnected {
		t.Errorf("%+v", e)
	}
	for _, who := range []string{at.Remote, at.ID} {
		if n, err := Kick(ctx, s.Endpoints().Snapshot, who, sockets.Security{}); err != nil || n != 1 {
			t.Errorf("%s: %d, %v", who, n, err)
		}
		if e := <-links; e.Kind != LinkLost {
			t.Errorf("%+v", e)
		}
		sequence, err := other.SetSync(ctx, "/meanwhile/"+who, []byte("2"))
		must(t, err)
		if e := <-links; e.Kind != LinkResynced {
			t.Errorf("%+v", e)
		}
		eventually(t, "it has what it missed", func() bool { return one.Sequence() >= sequence })
	}
	for _, who := range []string{at.Remote, "", "nobody"} { // it has another address now
		if n := s.Kick(who); n != 0 {
			t.Errorf("%q: %d clients", who, n)
		}
	}
	select {
	case err := <-lost:
		t.Errorf("the other client: %v", err)
	default:
	}
}

// Programs read the fields by their names in JSON.
func TestClientInfoNames(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(ClientInfo{Subtrees: []string{}})
	must(t, err)
	want := `{"name":"","id":"","remote":"","endpoint":"","subtrees":[],"more_subtrees":0,"lag":0,"queue_bytes":0,"sent":0,"received":0,"since":"0001-01-01T00:00:00Z"}`
	if string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}
