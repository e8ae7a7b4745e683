package snail

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestMalformedFlood: a receive call ends with its context even during a flood of
// messages without a stamp.
func TestMalformedFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for range 3 {
		must(t, r.pub.Send(r.ctx, []byte("x"), []byte("no stamp")))
	}
	r.send("x")
	eventually(t, "the messages wait", func() bool {
		peers := r.sub.Peers()
		return len(peers) == 1 && peers[0].PendingMessages == 4
	})
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.sub.opts.Now = func() time.Time {
		cancel() // as soon as a message is checked
		return r.here.now()
	}
	if m, _, err := r.sub.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v", m, err)
	}
	r.wants("x", 0)
	if n := r.sub.Stats().Malformed; n != 3 {
		t.Errorf("%d messages without a stamp", n)
	}
}
