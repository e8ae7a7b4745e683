package majordomo

import (
	"testing"

	"clustermap/internal/hooks"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestAllocRouting: in steady state, routing a request to a worker and its reply back
// does not allocate, whether a worker is free or the request has to wait.
func TestAllocRouting(t *testing.T) {
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	c := newRaw(t, endpoint, sockets.Options{})
	const requests = 50 // at once
	request := zmtp.AppendMessage(nil, []byte{}, []byte(client01), []byte("s"), []byte("body"), make([]byte, 100))
	c.send("", client01, "s", "first")
	address := w.awaitRequest("first")
	w.reply(address, "done")
	c.await("", client01, "s", "done")
	reply := zmtp.AppendMessage(nil, []byte{}, []byte(worker01), []byte(cReply), []byte(address), []byte{}, make([]byte, 100))
	var wire []byte
	for range requests {
		wire = append(wire, request...)
	}
	var batch sockets.Batch
	defer batch.Release()
	round := func() {
		must(t, hooks.SendWire(c.ctx, c, wire, requests, nil))
		for n := 0; n < requests; {
			must(t, w.RecvBatch(w.ctx, &batch))
			for i := range batch.Len() {
				if batch.Message(i).Len() > 3 {
					must(t, hooks.SendWire(w.ctx, w, reply, 1, nil))
					n++
				}
			}
		}
		for n := 0; n < requests; n += batch.Len() {
			must(t, c.RecvBatch(c.ctx, &batch))
		}
	}
	// Fewer than one for 50 requests: timers and growing buffers may allocate.
	if n := testenv.Allocs(100, 100, round); n >= 1 {
		t.Errorf("%v allocations for %d requests", n, requests)
	}
}
