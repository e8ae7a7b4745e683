package chp

import (
	"errors"
	"strings"
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestOperatorGetsInWhenAllConnectionsAreTaken: while peers occupy all of MaxClients,
// somebody on the server's machine can ask for its status, and for a handover, and can
// read and write the map.
func TestOperatorGetsInWhenAllConnectionsAreTaken(t *testing.T) {
	t.Parallel()
	const most = 3
	s := startServer(t, ServerOptions{MaxClients: most})
	at := s.Endpoints()
	for range most {
		for endpoint, make := range map[string]func(sockets.Options) (sockets.Socket, error){
			at.Snapshot:  func(o sockets.Options) (sockets.Socket, error) { return sockets.NewDealer(o) },
			at.Publisher: func(o sockets.Options) (sockets.Socket, error) { return sockets.NewSub(o) },
			at.Collector: func(o sockets.Options) (sockets.Socket, error) { return sockets.NewPub(o) },
		} {
			events := sockets.NewMonitorChan(10)
			peer, err := make(sockets.Options{Linger: sockets.LingerNone, Monitor: events.Tell})
			must(t, err)
			t.Cleanup(func() { peer.Close() })
			must(t, peer.Connect(endpoint))
			for e := range events.Events() {
				if e.Kind == sockets.EventHandshakeSucceeded {
					break
				}
			}
		}
	}
	if _, err := ServerStatus(testContext(t), at.Snapshot, sockets.Security{}); err != nil {
		t.Error("status:", err)
	}
	if err := Failover(testContext(t), at.Snapshot, sockets.Security{}); !errors.As(err, new(*HandoverError)) {
		t.Error("failover:", err) // it is no server of a pair, but it answers
	}
	c := startClient(t, s, ClientOptions{})
	if _, err := c.SetSync(testContext(t), "/operator", []byte("here")); err != nil {
		t.Error("set:", err)
	}
}

// TestAdministratorIsAnOperator: with CURVE a place beyond MaxClients is for the keys of
// administrators and of the other server of a pair, and not for any client.
func TestAdministratorIsAnOperator(t *testing.T) {
	t.Parallel()
	server, admin, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	s := startServer(t, ServerOptions{
		Security: sockets.Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: sockets.AllowKeys(admin.Public, client.Public)},
		Admins:   []zmtp.PublicKey{admin.Public},
	})
	for key, want := range map[zmtp.KeyPair]bool{admin: true, client: false} {
		asked := make(chan *sockets.Peer, 1)
		router, err := sockets.NewRouter(sockets.Options{
			Security: sockets.Security{CurveServer: true, CurveSecretKey: server.Secret},
			Monitor: func(e sockets.Event) {
				if e.Kind == sockets.EventHandshakeSucceeded {
					asked <- e.Peer
				}
			},
		})
		must(t, err)
		defer router.Close()
		must(t, router.Bind(testContext(t), "tcp://127.0.0.1:*"))
		dealer, err := sockets.NewDealer(sockets.Options{Security: sockets.Security{CurveSecretKey: key.Secret, CurveServerKey: server.Public}})
		must(t, err)
		defer dealer.Close()
		must(t, dealer.Connect(router.LastEndpoint()))
		if got := s.operator(<-asked); got != want {
			t.Errorf("%v is an operator: %v", key.Public, got)
		}
	}
}

// TestServerDisconnectsSubscribersToWhatIsNoKey: a topic longer than any key matches
// nothing, and only occupies memory. The server says so in its log.
func TestServerDisconnectsSubscribersToWhatIsNoKey(t *testing.T) {
	t.Parallel()
	log := &lockedLog{}
	s := startServer(t, ServerOptions{Logger: log.logger()})
	longest := "/" + strings.Repeat("k", kvmsg.MaxKey-2) + "/"
	c := startClient(t, s, ClientOptions{Subtrees: []string{longest}})
	must(t, c.WaitActive(testContext(t)))
	events := sockets.NewMonitorChan(10)
	sub, err := sockets.NewSub(sockets.Options{ReconnectInterval: sockets.ReconnectNever, Monitor: events.Tell})
	must(t, err)
	defer sub.Close()
	must(t, sub.Subscribe(longest+"k"))
	must(t, sub.Connect(s.Endpoints().Publisher))
	for e := range events.Events() {
		if e.Kind == sockets.EventDisconnected {
			break
		}
	}
	eventually(t, "a line in the log", func() bool { return strings.Contains(log.String(), "too large") })
	if c.State() != StateActive {
		t.Error("the other client is", c.State())
	}
}
