package route

import (
	"testing"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// balancer returns one of a socket without connections.
func balancer(t *testing.T, immediate bool) *Balancer {
	t.Helper()
	unlimited := queue.HWM{Messages: queue.Unbounded, Bytes: queue.Unbounded}
	core, lb := new(engine.Socket), new(Balancer)
	core.Init(zmtp.TypePush, &engine.Config{
		Send: unlimited, Recv: unlimited, SendTotalBytes: queue.Unbounded, MaxMessageSize: queue.Unbounded, Immediate: immediate,
	}, new(engine.Pattern))
	t.Cleanup(core.Close)
	lb.Init(core)
	return lb
}

// A sender that has just loaded the only pipe may offer to it after it was
// taken out: a message that comes too late must be refused, not kept or lost.
func TestOnlyPipeTakenOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lasting, immediate bool
		late               queue.Verdict
	}{
		"accepted":            {false, false, queue.Ended},
		"dialled":             {true, false, queue.Accepted},
		"dialled, Immediate":  {true, true, queue.Ended},
		"accepted, Immediate": {false, true, queue.Ended},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lb := balancer(t, test.immediate)
			p := engine.NewPipe(lb.core, "tcp://127.0.0.1:1", test.lasting)
			message := [][]byte{[]byte("message")}
			if test.lasting {
				lb.Added(p)
			}
			p.Out.Attach(new(queue.Conn))
			lb.Attached(p)
			one := lb.only.Load()
			if one == nil || one.pipe != p {
				t.Fatalf("the only pipe is %v", one)
			}
			if v := p.Out.Offer(one.to, nil, message); v != queue.Accepted {
				t.Fatalf("while connected: verdict %d", v)
			}
			lb.Detached(p)
			p.Out.Discard()
			if v := p.Out.Offer(one.to, nil, message); v != test.late {
				t.Errorf("after the connection: verdict %d, want %d", v, test.late)
			}
			if kept := lb.only.Load() != nil; kept != (test.late == queue.Accepted) {
				t.Errorf("the only pipe is there afterwards: %v", kept)
			}
		})
	}
}

func TestOnlyPipeOfSeveral(t *testing.T) {
	t.Parallel()
	lb := balancer(t, false)
	one, two := engine.NewPipe(lb.core, "tcp://127.0.0.1:1", true), engine.NewPipe(lb.core, "tcp://127.0.0.1:2", true)
	lb.Added(one)
	lb.Added(two)
	if lb.only.Load() != nil {
		t.Error("one of two pipes is taken for the only one")
	}
	for range 4 {
		if err := lb.Send(queue.NoWait, [][]byte{[]byte("message")}); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := one.Out.Status(), two.Out.Status(); a.Messages != 2 || b.Messages != 2 {
		t.Errorf("%d and %d messages, want 2 and 2", a.Messages, b.Messages)
	}
	lb.Remove(one)
	if left := lb.only.Load(); left == nil || left.pipe != two {
		t.Error("the pipe that is left is not the only one")
	}
}
