package majordomo

import (
	"strings"
	"testing"

	"clustermap/sockets"
)

// TestSpareMemory: the memory that a broker keeps for reuse is bounded in bytes.
func TestSpareMemory(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{})
	client := newRaw(t, endpoint, sockets.Options{})
	const n = 6000
	body := strings.Repeat("x", 4000)
	for range n {
		client.send("", client01, "nobody", body)
	}
	eventually(t, "all wait", func() bool { return b.Stats().Requests == n })
	must(t, client.Close())
	eventually(t, "none is left", func() bool { return b.Stats().Bytes == 0 })
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := 0
	for _, j := range b.backlog.spareJobs {
		sum += cap(j.data)
	}
	if sum != b.backlog.spareBytes || sum > maxSpareBytes || sum == 0 {
		t.Errorf("%d bytes are kept, %d counted; at most %d are allowed", sum, b.backlog.spareBytes, maxSpareBytes)
	}
}
