package majordomo

import (
	"strings"
	"sync"
	"testing"

	"clustermap/sockets"
)

// A broker ends after the current drain, not when its clients pause.
func TestCloseInFlood(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	r := newRaw(t, endpoint, sockets.Options{})
	b.mu.Lock() // so that messages wait
	unlock := sync.OnceFunc(b.mu.Unlock)
	defer unlock()
	const messages = 24
	body := strings.Repeat("x", maxDrainBytes/6) // a few of them fill a drain
	for range messages {
		r.request("service", body)
	}
	eventually(t, "the requests wait", func() bool {
		peers := b.router.Peers()
		return len(peers) == 1 && peers[0].MessagesIn == messages
	})
	before := b.drain
	b.cancel()
	unlock()
	b.running.Wait()
	if n := b.drain - before; n > 1 {
		t.Errorf("%d drains after the end", n)
	}
}
