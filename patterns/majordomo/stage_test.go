package majordomo

import (
	"strconv"
	"strings"
	"testing"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestStageIsSentWhenFull: what a drain has for one peer is sent in parts that stay in the
// processor's cache, and all of it arrives in order.
func TestStageIsSentWhenFull(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{})
	client := newRaw(t, endpoint, sockets.Options{})
	client.send("", client01, "nobody", "x")
	eventually(t, "the client is known", func() bool { return b.Stats().Requests == 1 })
	const n, size = 40, 50 << 10
	body := func(i int) string { return strconv.Itoa(i) + strings.Repeat("x", size) }
	b.mu.Lock()
	var c *conn
	for _, c = range b.conns {
	}
	most := 0
	for i := range n {
		dst := appendClientHeader(append(b.out.open(c), 1, 0), Version01, reply, "s")
		c.stage.Bytes = zmtp.AppendFrame(dst, []byte(body(i)), false)
		most = max(most, len(c.stage.Bytes))
	}
	b.out.flush(b.now)
	b.mu.Unlock()
	if most >= fullStage+2*size {
		t.Errorf("a stage had %d bytes", most)
	}
	for i := range n {
		client.await("", client01, "s", body(i))
	}
}
