package sockets

import (
	"testing"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// TestConflateAfterWaiting: over inproc the queue of a sender to a receiver with
// Conflate does not grow, also if the sender queued messages before the receiver was
// bound: some that were lent to it, or more than go into one stage. The receiver gets
// the last message alone.
func TestConflateAfterWaiting(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for name, wait := range map[string]func(*Push){
		"lent": func(p *Push) {
			must(t, p.sendWire(ctx, zmtp.AppendMessage(nil, make([]byte, queue.LendFrom)), 1, newLender()))
		},
		"stages": func(p *Push) {
			for range 3 {
				must(t, p.Send(ctx, make([]byte, queue.FullStage)))
			}
		},
		"short": func(p *Push) {
			for range 3 {
				must(t, p.Send(ctx, []byte("early")))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var names Inproc
			push := open(t, NewPush, Options{Inproc: &names, Linger: LingerNone})
			must(t, push.Connect("inproc://conflate"))
			wait(push)
			pull := open(t, NewPull, Options{Inproc: &names, Conflate: true})
			must(t, pull.Bind(ctx, "inproc://conflate"))
			before := push.Peers()[0].QueuedMessages
			for range 1000 {
				must(t, push.Send(ctx, make([]byte, 1<<10)))
			}
			must(t, push.Send(ctx, []byte("last")))
			if n := push.Peers()[0].QueuedMessages; n > before+1 {
				t.Errorf("%d messages are queued, %d before the receiver was bound", n, before)
			}
			m, err := pull.Recv(ctx)
			if err != nil || string(m[0]) != "last" {
				t.Errorf("received %d bytes, %v", len(m[0]), err)
			}
			if m, err := pull.TryRecv(); err == nil {
				t.Errorf("received %d bytes more", len(m[0]))
			}
		})
	}
}
