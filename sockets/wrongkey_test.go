package sockets

import (
	"errors"
	"io"
	"strings"
	"testing"

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
