package queue

import (
	"testing"
	"time"
)

// TestInboxAhead: a reader far ahead waits until the application has caught up,
// and is not held up by an application that does not get on.
func TestInboxAhead(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(HWM{Messages: 1000, Bytes: 16 << 20})
	q := newInqueue()
	push := func(n int) {
		for range n {
			b := batchOf(nil, "message")
			b.Cost = aheadBytes / 4
			in.Put(q, &b, alive)
		}
	}
	queued := func() (messages int, left bool) {
		in.lock()
		defer in.mu.Unlock()
		return q.size.Messages, q.slow
	}
	push(4)
	if _, left := queued(); left {
		t.Error("the application is given up before there is anything to wait for")
	}
	push(20) // nothing takes any but the first four
	if n, left := queued(); n != 24 || !left {
		t.Errorf("%d messages are queued (the application is given up: %v), want 24, true", n, left)
	}
	var batch Batch
	defer batch.Release()
	for range 22 {
		must(t, takeBatch(ctx, in, &batch))
	}
	if n, left := queued(); n != 2 || !left {
		t.Errorf("%d messages are left (the application is given up: %v), want 2, true", n, left)
	}
	must(t, takeBatch(ctx, in, &batch))
	if _, left := queued(); left {
		t.Error("the application has caught up, and is still given up")
	}

	// A reader that waits goes on when half of it is taken.
	in.grace = time.Hour
	push(3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		push(1)
	}()
	eventually(t, "the reader waits", func() bool {
		in.lock()
		defer in.mu.Unlock()
		return q.room.Waiters() > 0
	})
	for range 3 {
		must(t, takeBatch(ctx, in, &batch))
	}
	<-done
	if n, left := queued(); n != 2 || left {
		t.Errorf("%d messages are queued (the application is given up: %v), want 2, false", n, left)
	}
}
