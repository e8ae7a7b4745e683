package sockets

import (
	"testing"
	"time"

	"clustermap/internal/hooks"
)

// A subscription that is not admitted takes no effect, also one that a peer had before it connected.
func TestAdmit(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := open(t, NewPub, Options{})
	hooks.Admit(pub, func(peer any, topic []byte) bool { return peer.(*Peer).SocketType() == "SUB" && string(topic) != "b" })
	must(t, pub.Bind(ctx, freePort(t)))
	sub := open(t, NewSub, Options{})
	for _, topic := range []string{"b", "a"} {
		must(t, sub.Subscribe(topic))
	}
	must(t, sub.Connect(pub.LastEndpoint()))
	must(t, sub.WaitSubscribed(ctx))
	must(t, sub.Unsubscribe("b")) // which it does not have
	must(t, sub.Subscribe("b"))
	must(t, sub.WaitSubscribed(ctx))
	for _, m := range []string{"b1", "a1", "b2", "a2"} {
		must(t, pub.Send(ctx, []byte(m)))
	}
	for _, want := range []string{"a1", "a2"} {
		if m, err := sub.Recv(ctx); err != nil || string(m[0]) != want {
			t.Fatalf("%q, %v; want %q", m, err, want)
		}
	}
	if n := pub.Subscriptions(); n != 1 {
		t.Errorf("%d subscriptions", n)
	}
}

// A connection that is not read for a while keeps neither others nor Close waiting, and what came before is there.
func TestPace(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := open(t, NewPull, Options{})
	hooks.Pace(pull, func(b *hooks.Batch) time.Duration {
		if m, _ := b.Message(0).Next(); string(m) == "slow" {
			return time.Hour
		}
		return 0
	})
	must(t, pull.Bind(ctx, freePort(t)))
	for _, text := range []string{"slow", "one", "two"} {
		push := open(t, NewPush, Options{})
		must(t, push.Connect(pull.LastEndpoint()))
		must(t, push.Send(ctx, []byte(text)))
		if m, err := pull.Recv(ctx); err != nil || string(m[0]) != text {
			t.Fatalf("%q, %v; want %q", m, err, text)
		}
	}
	must(t, pull.Close())
}
