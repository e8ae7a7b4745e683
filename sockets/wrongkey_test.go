package sockets

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"clustermap/zmtp"
)

// The monitor of a client with another server's CURVE key names the likely cause.
func TestWrongServerKeyIsNamed(t *testing.T) {
	t.Parallel()
	ours, theirs, other := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	server := bind(t, NewRouter, Options{Security: Security{CurveServer: true, CurveSecretKey: theirs.Secret}})
	failed := make(chan error, 1)
	client := open(t, NewDealer, Options{
		Security:          Security{CurveSecretKey: ours.Secret, CurveServerKey: other.Public},
		ReconnectInterval: ReconnectNever,
		Monitor: func(e Event) {
			if e.Kind == EventHandshakeFailed {
				failed <- e.Err
			}
		},
	})
	must(t, client.Connect(server.LastEndpoint()))
	select {
	case err := <-failed:
		if !strings.Contains(err.Error(), "closed during the handshake (wrong server key?)") || !errors.Is(err, io.EOF) || !errors.Is(err, ErrServerKey) {
			t.Errorf("the client reports %v", err)
		}
	case <-testContext(t).Done():
		t.Error("no handshake has failed")
	}
}

// TestDroppedHandshakeIsNoWrongKey: a server that has too many handshakes, no time left for one, or
// ends does not end connections as it does in answer to HELLO.
func TestDroppedHandshakeIsNoWrongKey(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"for another one": {MaxHandshakes: 1},
		"late":            {HandshakeTimeout: 10 * time.Millisecond},
		"the server ends": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := newEvents()
			o.Monitor = seen.Tell
			o.Security = Security{CurveServer: true, CurveSecretKey: zmtp.GenerateKeyPair().Secret}
			server := open(t, NewRouter, o)
			server.core.Tuning.HandshakeGrace = time.Millisecond
			must(t, server.Bind(testContext(t), anyPort))
			client := dialRaw(t, server.LastEndpoint())
			seen.Await(t, EventAccepted)
			switch {
			case o.MaxHandshakes > 0:
				dialRaw(t, server.LastEndpoint())
			case o.HandshakeTimeout == 0:
				must(t, server.Close())
			}
			if _, err := io.Copy(io.Discard, client.Conn); err == nil {
				t.Error("the connection ended in good order")
			}
		})
	}
}
