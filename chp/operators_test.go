package chp

import (
	"errors"
	"testing"

	"clustermap/sockets"
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
