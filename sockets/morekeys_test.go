package sockets

import (
	"errors"
	"testing"
	"time"

	"clustermap/zmtp"
)

// Clients of a CURVE server may know any of its keys, and no other one.
func TestCurveMoreKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first, former, other, mine := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	pull := open(t, NewPull, Options{Security: Security{CurveServer: true, CurveSecretKey: first.Secret, CurveMoreKeys: []zmtp.SecretKey{zmtp.GenerateKeyPair().Secret, former.Secret}}})
	must(t, pull.Bind(ctx, freePort(t)))
	for _, key := range []zmtp.PublicKey{first.Public, former.Public} {
		push := open(t, NewPush, Options{Security: Security{CurveSecretKey: mine.Secret, CurveServerKey: key}})
		must(t, push.Connect(pull.LastEndpoint()))
		must(t, push.Send(ctx, []byte("hello")))
		b := new(Batch)
		must(t, pull.RecvBatch(ctx, b))
		if b.Peer().PublicKey() != mine.Public {
			t.Error("the client has another key")
		}
		b.Release()
	}
	failed := make(chan error, 100)
	push := open(t, NewPush, Options{Security: Security{CurveSecretKey: mine.Secret, CurveServerKey: other.Public}, Monitor: func(e Event) {
		if e.Kind == EventHandshakeFailed {
			select {
			case failed <- e.Err:
			default:
			}
		}
	}})
	must(t, push.Connect(pull.LastEndpoint()))
	if err := <-failed; !errors.Is(err, ErrServerKey) {
		t.Errorf("with another key: %v", err)
	}
	for _, s := range []Security{{CurveMoreKeys: []zmtp.SecretKey{former.Secret}}, {CurveServer: true, CurveSecretKey: first.Secret, CurveMoreKeys: make([]zmtp.SecretKey, 1)}} {
		if err := s.Validate(); err == nil {
			t.Errorf("%v is valid", s)
		}
	}
}

// A CURVE client that knows several keys of its server finds the right one, at once and without a failed handshake, over and over as the
// server changes its key. With none of them it fails as with one.
func TestCurveMoreServerKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	keys, mine := []zmtp.KeyPair{zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()}, zmtp.GenerateKeyPair()
	pull := open(t, NewPull, Options{Security: Security{CurveServer: true, CurveSecretKey: keys[1].Secret}})
	must(t, pull.Bind(ctx, freePort(t)))
	seen := newEvents()
	push := open(t, NewPush, Options{
		Security: Security{CurveSecretKey: mine.Secret, CurveServerKey: keys[0].Public, CurveMoreServerKeys: []zmtp.PublicKey{keys[1].Public, keys[2].Public}},
		Monitor:  seen.Tell, ReconnectInterval: time.Millisecond, ReconnectIntervalMax: 2 * time.Millisecond,
	})
	must(t, push.Connect(pull.LastEndpoint()))
	for turn := range 6 {
		must(t, push.Send(ctx, []byte("hello")))
		b := new(Batch)
		must(t, pull.RecvBatch(ctx, b))
		next := keys[(turn+2)%3]
		must(t, pull.SetOptions(func(o *Options) { o.Security.CurveSecretKey, o.Security.CurvePublicKey = next.Secret, next.Public }))
		b.Peer().Disconnect(errors.New("so that it comes back"))
		b.Release()
		seen.Await(t, EventDisconnected)
		seen.Await(t, EventHandshakeSucceeded)
	}
	for _, e := range seen.All() {
		if e.Kind == EventHandshakeFailed || e.Kind == EventConnectRetried && errors.Is(e.Err, ErrServerKey) && e.Retry != 0 {
			t.Errorf("%v: %v", e.Kind, e.Err)
		}
	}
	other := zmtp.GenerateKeyPair()
	must(t, pull.SetOptions(func(o *Options) { o.Security.CurveSecretKey, o.Security.CurvePublicKey = other.Secret, other.Public }))
	failed := newEvents()
	none := open(t, NewPush, Options{Security: push.Options().Security, Monitor: failed.Tell, ReconnectInterval: ReconnectNever})
	must(t, none.Connect(pull.LastEndpoint()))
	if e := failed.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrServerKey) || failed.Count(EventConnectRetried) != 2 {
		t.Errorf("%v after %v", e.Err, failed.Kinds())
	}
	for _, s := range []Security{{CurveMoreServerKeys: []zmtp.PublicKey{other.Public}}, {CurveSecretKey: mine.Secret, CurveServerKey: other.Public, CurveMoreServerKeys: make([]zmtp.PublicKey, 1)}} {
		if err := s.Validate(); err == nil {
			t.Errorf("%v is valid", s)
		}
	}
}
