package fanout

import (
	"bytes"
	"clustermap/internal/queue"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// heap returns the bytes of the heap that are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestSubscriptionOccupiesWhatItCounts: the memory of subscriptions is at most what they
// count, whether few peers have many topics or many peers few, and it is returned.
func TestSubscriptionOccupiesWhatItCounts(t *testing.T) {
	// Not parallel: it looks at the whole heap.
	for name, c := range map[string]struct {
		peers, topics int
		topic         func(b []byte, peer, i int) []byte
	}{
		"short topics": {4, 20_000, func(b []byte, peer, i int) []byte { return fmt.Append(b, i, "/", peer) }},
		"one branch each": {4, 20_000, func(b []byte, peer, i int) []byte {
			return fmt.Append(b, (i/2)%10, "/", i/2, "abcdefgh"[i%2:i%2+1], peer)
		}},
		"prefixes":     {1, 2000, func(b []byte, _, i int) []byte { return append(b, bytes.Repeat([]byte{'p'}, i)...) }},
		"long topics":  {4, 500, func(b []byte, peer, i int) []byte { return fmt.Append(b, peer, "/", i, strings.Repeat("t", 4000)) }},
		"shared topic": {5000, 1, func(b []byte, _, _ int) []byte { return append(b, "all of them"...) }},
		"few topics":   {5000, 3, func(b []byte, peer, i int) []byte { return fmt.Append(b, "/", i, "/", peer, "/") }},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := fanned(t, 0, Settings{})
			peers := make([]*Subscriber, c.peers)
			for i := range peers {
				peers[i] = attach(s, newOutbox())
			}
			before := heap()
			var b []byte
			for i := range c.topics {
				for peer, q := range peers {
					b = c.topic(b[:0], peer, i)
					if _, err := s.subscribe(q, b, queue.Unbounded); err != nil {
						t.Fatal(err)
					}
				}
			}
			occupied := heap() - before
			if occupied > s.used {
				t.Errorf("%d bytes are occupied, %d count", occupied, s.used)
			}
			t.Logf("%d bytes are occupied, %d count", occupied, s.used)
			for _, q := range peers {
				s.Detach(q, nil)
			}
			if left := heap() - before; left > occupied/10+1<<16 || s.used != 0 {
				t.Errorf("%d bytes of %d are left, %d count", left, occupied, s.used)
			}
			runtime.KeepAlive(peers)
		})
	}
}

// TestSubscriberThatStaysKeepsNoMemoryOfOthers: topics that are prefixes of long ones do not
// keep the memory of these when they have gone.
func TestSubscriberThatStaysKeepsNoMemoryOfOthers(t *testing.T) {
	// Not parallel: it looks at the whole heap.
	const topics, size = 1000, 4000
	s, _ := fanned(t, 0, Settings{})
	stays, goes := attach(s, newOutbox()), attach(s, newOutbox())
	before := heap()
	for i := range topics {
		_, err := s.subscribe(goes, fmt.Append(nil, i, "/", strings.Repeat("t", size)), topics)
		must(t, err)
		_, err = s.subscribe(stays, fmt.Append(nil, i, "/"), topics)
		must(t, err)
	}
	s.Detach(goes, nil)
	if left := heap() - before; left > topics*size/4 {
		t.Errorf("%d bytes are left", left)
	}
	runtime.KeepAlive(s)
}
