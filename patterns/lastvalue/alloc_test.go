package lastvalue

import (
	"fmt"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// TestAllocForward: storing and forwarding messages of known topics does not allocate.
// It is not parallel, since it counts the allocations of the whole process.
func TestAllocForward(t *testing.T) {
	r := newRig(t, Options{})
	const topics = 100
	var messages [topics][][]byte
	for n := range messages {
		messages[n] = frames(fmt.Sprintf("topic/of/twenty/%04d", n), "a value", "")
	}
	all, some := r.subscriber(""), r.subscriber("topic/of/twenty/00")
	r.answered(2)
	var a, s sockets.Batch
	defer a.Release()
	defer s.Release()
	take := func(sub *sockets.Sub, b *sockets.Batch) {
		for n := topics; n > 0; n -= b.Len() {
			must(t, sub.RecvBatch(r.ctx, b))
		}
	}
	round := func() {
		for _, m := range messages {
			must(t, r.pub.Send(r.ctx, m...))
		}
		take(all, &a)
		take(some, &s)
	}
	if n := testenv.Allocs(200, 500, round); n != 0 {
		t.Errorf("%d messages allocate %v times", topics, n)
	}
}
