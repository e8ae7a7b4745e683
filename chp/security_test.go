package chp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// curve is a server's security with an allow-list, and that of a client on it.
func curve() (server, client sockets.Security) {
	ours, theirs := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	server = sockets.Security{CurveServer: true, CurveSecretKey: ours.Secret, Authenticate: sockets.AllowKeys(theirs.Public)}
	client = sockets.Security{CurveSecretKey: theirs.Secret, CurveServerKey: ours.Public}
	return server, client
}

// TestSecurityReplicates: over CURVE, and over PLAIN, the map is the same as without
// security.
func TestSecurityReplicates(t *testing.T) {
	t.Parallel()
	serverCurve, clientCurve := curve()
	for name, c := range map[string]struct{ server, client sockets.Security }{
		"CURVE": {serverCurve, clientCurve},
		"PLAIN": {
			sockets.Security{PlainServer: true, Authenticate: sockets.AllowUsers(map[string]string{"user": "password"})},
			sockets.Security{PlainUsername: "user", PlainPassword: "password"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			server := startServer(t, ServerOptions{Security: c.server})
			open := func() *Client {
				client, err := NewClient(ClientOptions{Servers: []string{server.Endpoints().Snapshot}, Security: c.client})
				must(t, err)
				t.Cleanup(func() { client.Close() })
				must(t, client.WaitActive(ctx))
				return client
			}
			first := open()
			const count = 300
			for i := 1; i < count; i++ {
				must(t, first.Set(ctx, fmt.Sprint("/k/", i), []byte(strings.Repeat("v", i*100))))
			}
			_, err := first.SetSync(ctx, "/last", []byte("set"))
			must(t, err)
			second := open() // gets it as a snapshot
			for _, client := range []*Client{first, second} {
				if client.Len() != count {
					t.Errorf("%d keys, want %d", client.Len(), count)
				}
				if v, ok := client.Get(fmt.Sprint("/k/", count-1)); !ok || len(v) != (count-1)*100 {
					t.Errorf("%d bytes", len(v))
				}
			}
		})
	}
}

// TestSecurityRefuses: a client without access is refused, learns the reason, and nothing
// of the map.
func TestSecurityRefuses(t *testing.T) {
	t.Parallel()
	serverCurve, known := curve()
	unknown := known
	unknown.CurveSecretKey = zmtp.GenerateKeyPair().Secret
	for name, c := range map[string]struct {
		client sockets.Security
		want   error
	}{
		"unknown key":         {unknown, zmtp.ErrRefused},
		"without a mechanism": {sockets.Security{}, zmtp.ErrMechanism},
		"another mechanism":   {sockets.Security{PlainUsername: "user"}, zmtp.ErrMechanism},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, ServerOptions{Security: serverCurve})
			failed := make(chan error, 1)
			client, err := NewClient(ClientOptions{
				Servers: []string{server.Endpoints().Snapshot}, Security: c.client,
				OnFailure: func(_ string, err error) {
					select {
					case failed <- err:
					default:
					}
				},
			})
			must(t, err)
			defer client.Close()
			select {
			case err := <-failed:
				if !errors.Is(err, c.want) {
					t.Errorf("%v", err)
				}
			case <-testContext(t).Done():
				t.Fatal("no failure")
			}
			ctx, cancel := context.WithCancel(testContext(t))
			cancel()
			if err := client.WaitActive(ctx); !errors.Is(err, c.want) {
				t.Errorf("WaitActive returns %v", err)
			}
		})
	}
}

// TestSecurityOptions: faults of keys are reported together with all others.
func TestSecurityOptions(t *testing.T) {
	t.Parallel()
	bad := sockets.Security{CurveServer: true}
	_, server := NewServer(ServerOptions{Security: bad, Port: -1})
	_, client := NewClient(ClientOptions{Security: bad})
	for _, err := range []error{server, client} {
		for _, want := range []string{"chp: option ", "sockets: option Security.CurveSecretKey: "} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
	}
}
