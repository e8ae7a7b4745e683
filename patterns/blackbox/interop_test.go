package blackbox

import (
	"encoding/base64"
	"fmt"
	"testing"

	"clustermap/internal/interop"
)

// TestInterop: a PUB of libzmq with several shards and workers. It does not report when
// a subscription is active, so it sends to each shard until a message arrives.
func TestInterop(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	pub := interop.Python(t, "zmq_peer.py", "--type", "PUB", "--hwm", "0", "--bind", "tcp://127.0.0.1:*")
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	flood := func(topic string, first, n int) *interop.Pending {
		return pub.Start(interop.Op{"op": "flood", "head": []string{encode(topic)}, "first": first, "n": n, "size": 50})
	}
	l := newLedger()
	const shards, count = 3, 2000
	b := open(t, Options{Connect: []string{pub.Endpoint}, Shards: SpreadAll(shards), Workers: 2, Handle: l.handle})
	for i := range shards {
		topic := fmt.Sprintf("%c probe", 'A'+i)
		eventually(t, "a message comes to each shard", func() bool {
			flood(topic, 0, 1).Done(nil)
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.numbers[topic]) > 0
		})
	}
	topics := []string{"A/1", "A/2", "B/1", "C/1", "D/1", "D/2", "E/1"}
	var sent []*interop.Pending
	for _, topic := range topics {
		sent = append(sent, flood(topic, 0, count))
	}
	for _, s := range sent {
		s.Done(nil)
	}
	eventually(t, "all have come", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, topic := range topics {
			if len(l.numbers[topic]) < count {
				return false
			}
		}
		return true
	})
	must(t, b.Close())
	for i := range shards {
		delete(l.numbers, fmt.Sprintf("%c probe", 'A'+i))
	}
	l.whole(t, topics, count)
}
