package sockets

import (
	"bytes"
	"testing"
)

// TestMessagesThatWaitForTheTotalCount: whole large messages that wait until the queues
// take them count as memory that is held, however many peers send them, and all of them
// arrive.
func TestMessagesThatWaitForTheTotalCount(t *testing.T) {
	t.Parallel()
	const bound, peers, size = 4 << 20, 20, 1 << 20
	ctx := testContext(t)
	seen := newEvents()
	pull := open(t, NewPull, Options{RecvTotalBytes: bound, MaxIncompleteBytes: bound, Monitor: seen.tell})
	pull.incomplete.patience = hang
	must(t, pull.Bind(ctx, anyPort))
	for i := range peers {
		push := open(t, NewPush, Options{})
		must(t, push.Connect(pull.LastEndpoint()))
		must(t, push.Send(ctx, bytes.Repeat([]byte{byte(i)}, size)))
		must(t, push.Send(ctx, bytes.Repeat([]byte{byte(i)}, size)))
	}
	check := func() {
		used, _ := pull.incomplete.held()
		s := pull.in.Status()
		if used > bound+2*size+1<<18 || s.Bytes > bound+4*size || s.Held*size > bound+2*size {
			t.Fatalf("%d bytes are held, %d queued, and %d readers wait", used, s.Bytes, s.Held)
		}
	}
	eventually(t, "readers wait", func() bool { check(); return pull.in.Status().Held > 0 })
	var count [peers]int
	for range 2 * peers {
		m, err := pull.Recv(ctx)
		must(t, err)
		check()
		count[m[0][0]]++
	}
	for i, n := range count {
		if n != 2 {
			t.Errorf("%d messages of peer %d", n, i)
		}
	}
	eventually(t, "nothing is held", func() bool {
		used, holders := pull.incomplete.held()
		return used == 0 && holders == 0
	})
	if n := seen.count(EventDisconnected); n > 0 {
		t.Errorf("%d disconnected", n)
	}
}
