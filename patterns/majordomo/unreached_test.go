package majordomo

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/loopback"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// A call that has found no broker says where it looked, and why there was none.
func TestErrorWithoutBrokerSaysWhy(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", loopback.Own()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	keys := zmtp.GenerateKeyPair()
	_, secure := startBroker(t, BrokerOptions{Socket: sockets.Options{Security: sockets.Security{CurveServer: true, CurveSecretKey: keys.Secret}}})
	for _, c := range []struct {
		name, broker string
		until        sockets.EventKind
		why          error
	}{
		{"refused", "tcp://" + loopback.Own() + ":5555", sockets.EventConnectFailed, syscall.ECONNREFUSED},
		{"silent", "tcp://" + mute.Addr().String(), sockets.EventConnected, errMute},
		{"handshake", secure, sockets.EventHandshakeFailed, zmtp.ErrMechanism},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for name, call := range map[string]func(ctx context.Context, o sockets.Options) error{
				"client": func(ctx context.Context, o sockets.Options) error {
					_, err := startClient(t, c.broker, ClientOptions{Socket: o}).Request(ctx, "echo")
					return err
				},
				"worker": func(ctx context.Context, o sockets.Options) error {
					return startWorker(t, "echo", c.broker, echo, WorkerOptions{Socket: o}).WaitRegistered(ctx)
				},
			} {
				ctx, cancel := context.WithCancel(testContext(t))
				err := call(ctx, sockets.Options{Linger: sockets.LingerNone, Monitor: func(e sockets.Event) {
					if e.Kind == c.until {
						cancel()
					}
				}})
				none, ok := errors.AsType[*NoBrokerError](err)
				if !ok || !errors.Is(err, context.Canceled) || !errors.Is(err, c.why) || none.Broker != c.broker || !strings.Contains(err.Error(), c.broker) {
					t.Fatalf("%s: %v", name, err)
				}
				if text, _ := json.Marshal(none); !strings.HasPrefix(string(text), `"majordomo: no broker`) {
					t.Errorf("%s", text)
				}
			}
		})
	}
}
