package sockets

import "testing"

// A sender that has just loaded the only pipe may offer to it after it was
// taken out: what then came too late must be refused, not kept or lost.
func TestOnlyPipeTakenOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lasting, immediate bool
		late               verdict
	}{
		"accepted":            {false, false, isEnded},
		"dialled":             {true, false, accepted},
		"dialled, Immediate":  {true, true, isEnded},
		"accepted, Immediate": {false, true, isEnded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push, err := NewPush(Options{Immediate: test.immediate})
			if err != nil {
				t.Fatal(err)
			}
			defer push.Close()
			lb := &push.balancer
			p := newPipe(&push.socket, "tcp://127.0.0.1:1", test.lasting)
			message := [][]byte{[]byte("message")}
			if test.lasting {
				lb.added(p)
			}
			p.out.attach(&Peer{pipe: p})
			lb.attached(p)
			one := lb.only.Load()
			if one == nil || one.pipe != p {
				t.Fatalf("the only pipe is %v", one)
			}
			if v := p.out.offer(one.to, nil, message); v != accepted {
				t.Fatalf("while connected: verdict %d", v)
			}
			lb.detached(p)
			p.out.discard()
			if v := p.out.offer(one.to, nil, message); v != test.late {
				t.Errorf("after the connection: verdict %d, want %d", v, test.late)
			}
			if kept := lb.only.Load() != nil; kept != (test.late == accepted) {
				t.Errorf("the only pipe is there afterwards: %v", kept)
			}
		})
	}
}

func TestOnlyPipeOfSeveral(t *testing.T) {
	t.Parallel()
	push, err := NewPush(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer push.Close()
	lb := &push.balancer
	one, two := newPipe(&push.socket, "tcp://127.0.0.1:1", true), newPipe(&push.socket, "tcp://127.0.0.1:2", true)
	lb.added(one)
	lb.added(two)
	if lb.only.Load() != nil {
		t.Error("one of two pipes is taken for the only one")
	}
	for range 4 {
		if err := push.TrySend([]byte("message")); err != nil {
			t.Fatal(err)
		}
	}
	if one.out.queue.messages != 2 || two.out.queue.messages != 2 {
		t.Errorf("%d and %d messages, want 2 and 2", one.out.queue.messages, two.out.queue.messages)
	}
	lb.remove(one)
	if left := lb.only.Load(); left == nil || left.pipe != two {
		t.Error("the pipe that is left is not the only one")
	}
}
