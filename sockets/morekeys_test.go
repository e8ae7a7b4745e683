package sockets

import (
	"errors"
	"testing"

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
