package chp

import (
	"testing"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// withKeys gives each server of a pair a key of its own, and returns the security of a
// client that both let in.
func withKeys(primary, backup *ServerOptions) (client sockets.Security) {
	keys := [3]zmtp.KeyPair{zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()}
	for i, o := range []*ServerOptions{primary, backup} {
		o.Security = sockets.Security{
			CurveServer: true, CurveSecretKey: keys[i].Secret,
			Authenticate: sockets.AllowKeys(keys[0].Public, keys[1].Public, keys[2].Public),
		}
		o.Pair.PeerSecurity = sockets.Security{CurveSecretKey: keys[i].Secret, CurveServerKey: keys[1-i].Public}
	}
	return sockets.Security{CurveSecretKey: keys[2].Secret, CurveServerKey: keys[0].Public}
}

// TestPairFollowerKey: with CURVE a client that is let in cannot pretend to be the
// other server. The other server can follow.
func TestPairFollowerKey(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	security := withKeys(&po, &bo)
	primary := startAlone(t, po)
	c, err := NewClient(ClientOptions{Servers: []string{bo.Pair.Peer}, Security: security, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	defer c.Close()
	must(t, c.WaitActive(ctx))

	f := dialFollower(t, primary, func(o *sockets.Options) { o.Security = security })
	f.follow(primary)
	select {
	case <-f.gone:
	case <-testContext(t).Done():
		t.Fatal("a client follows as if it were the other server")
	}

	backup := startPairServer(t, bo)
	_, err = c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	if v, _ := backup.Get("/a"); string(v) != "1" {
		t.Errorf("the backup has %q", v)
	}
}

// TestPairKeysFit: a pair of which only one direction is encrypted, or in which a
// server uses two keys, is refused.
func TestPairKeysFit(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ServerOptions){
		"only clients use CURVE":   func(o *ServerOptions) { o.Pair.PeerSecurity = sockets.Security{} },
		"only the peer uses CURVE": func(o *ServerOptions) { o.Security = sockets.Security{} },
		"another key for the peer": func(o *ServerOptions) { o.Pair.PeerSecurity.CurveSecretKey = zmtp.GenerateKeyPair().Secret },
	} {
		o, other := pairOptions(t)
		withKeys(&o, &other)
		change(&o)
		s, err := NewServer(o)
		if err == nil {
			must(t, s.Close())
			t.Errorf("%s: no error", name)
		}
	}
}
