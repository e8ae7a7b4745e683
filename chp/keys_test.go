package chp

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// A server that serves gets other keys while clients connect and write, and nothing that they have sent is lost; keys that cannot be are refused as a
// whole. A client that is no longer accepted is disconnected, and another one is not.
func TestServerGetsOtherKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	former, next, admin := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	stays, leaves := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	var gone atomic.Bool
	server := startServer(t, ServerOptions{
		Security: sockets.Security{CurveServer: true, CurveSecretKey: former.Secret},
		Accepted: func(p *sockets.Peer) bool { return !gone.Load() || p.PublicKey() != leaves.Public },
	})
	name := server.Endpoints().Snapshot
	connect := func(own zmtp.KeyPair, keys ...zmtp.KeyPair) *Client {
		s := sockets.Security{CurveSecretKey: own.Secret, CurveServerKey: keys[0].Public}
		for _, key := range keys[1:] {
			s.CurveMoreServerKeys = append(s.CurveMoreServerKeys, key.Public)
		}
		c, err := NewClient(ClientOptions{Servers: []string{name}, Security: s, Logger: quiet()})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	one, two := connect(stays, former, next), connect(leaves, former, next)
	must(t, one.WaitActive(ctx))
	must(t, two.WaitActive(ctx))
	for _, k := range []ServerKeys{{}, {Own: make([]zmtp.SecretKey, 1)}, {Own: []zmtp.SecretKey{next.Secret}, Peer: []zmtp.PublicKey{next.Public}}} {
		if option := (*OptionError)(nil); !errors.As(server.SetKeys(k), &option) {
			t.Errorf("%d and %d keys are accepted", len(k.Own), len(k.Peer))
		}
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for i := byte(0); ; i++ {
			if _, err := one.SetSync(ctx, "/k", []byte{'v', i}); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	asAdmin := sockets.Security{CurveSecretKey: admin.Secret, CurveServerKey: former.Public}
	for _, own := range [][]zmtp.SecretKey{{former.Secret, next.Secret}, {next.Secret, former.Secret}, {next.Secret}} {
		must(t, server.SetKeys(ServerKeys{Own: own, Admins: []zmtp.PublicKey{admin.Public}}))
		server.Kick(stays.Public.String())
		must(t, connect(stays, former, next).WaitActive(ctx))
	}
	close(stop)
	running.Wait()
	if _, err := Kick(ctx, name, "nobody", asAdmin); err == nil {
		t.Error("the server has its former key still")
	}
	asAdmin.CurveServerKey = next.Public
	if _, err := Kick(ctx, name, "nobody", asAdmin); err != nil {
		t.Error(err)
	}
	gone.Store(true)
	if n := server.Recheck(); n == 0 {
		t.Error("no connection has ended")
	}
	testenv.Eventually(t, "the end of the other client's connections", func() bool {
		for c := range server.Clients() {
			if c.Name == leaves.Public.String() {
				return false
			}
		}
		return true
	})
	if _, err := one.SetSync(ctx, "/last", []byte("v")); err != nil {
		t.Error(err)
	}
}
