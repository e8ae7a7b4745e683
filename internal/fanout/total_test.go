package fanout

import (
	"clustermap/internal/queue"
	"clustermap/zmtp"
	"fmt"
	"runtime"
	"testing"
)

// apartPeers gives each of the peers topics of its own, beside one that all have.
func apartPeers(t *testing.T, pub *Publisher, peers []*Subscriber) {
	t.Helper()
	pub.Lock()
	defer pub.Unlock()
	for i, q := range peers {
		pub.cancel(q, nil)
		for _, topic := range []string{"all/", fmt.Sprintf("own/%d/", i)} {
			_, err := pub.subscribe(q, []byte(topic), queue.Unbounded)
			must(t, err)
		}
	}
}

// The queues of all peers together stay within their bound, in groups of their own or
// not, and a peer that reads loses nothing by it.
func TestQueuesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const n, total, size = 20, 1 << 20, 10_000
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own topics %v", own), func(t *testing.T) {
			t.Parallel()
			pub, peers := fanned(t, n, Settings{Limits: unlimited(queue.Unbounded), Total: total})
			if own {
				apartPeers(t, pub, peers)
			}
			healthy := peers[n/2]
			body := make([]byte, size)
			var most int64
			for i := range 1000 {
				if i%2 == 0 {
					must(t, send(pub, []byte("all/"), body))
				} else {
					must(t, sendWire(pub, zmtp.AppendMessage(nil, []byte("all/"), body), 1, nil))
				}
				drain(healthy)
				pub.Lock()
				sum, _ := pub.longest()
				pub.Unlock()
				most = max(most, sum)
			}
			if slack := int64(total/totalStep + n*(size+100)); most > total+slack {
				t.Errorf("%d bytes were queued for all, bound %d", most, total)
			}
			if most < total/2 {
				t.Errorf("%d bytes were queued for all: too few for a bound of %d", most, total)
			}
			if s := healthy.out.Status(); s.Drops != 0 {
				t.Errorf("the one that takes all has lost %d messages", s.Drops)
			}
			lost := 0
			for _, q := range peers {
				if q.out.Status().Drops > 0 {
					lost++
				}
			}
			if lost != n-1 {
				t.Errorf("%d of %d that take nothing have lost messages", lost, n-1)
			}
		})
	}
}

// Messages that subscribers with topics of their own all get are copied once for all of
// them.
func TestOneCopyForAllGroups(t *testing.T) {
	const n, batches, size = 30, 64, 100_000
	pub, peers := fanned(t, n, Settings{Limits: unlimited(queue.Unbounded), Policy: Disconnect})
	apartPeers(t, pub, peers)
	var wire []byte
	for len(wire) < size {
		wire = zmtp.AppendMessage(wire, []byte("all/"), make([]byte, 1000))
	}
	messages := len(wire) / len(zmtp.AppendMessage(nil, []byte("all/"), make([]byte, 1000)))
	// Something in front that is for one of them alone.
	own := zmtp.AppendMessage(nil, []byte("own/3/"), make([]byte, 5000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range batches {
		must(t, sendWire(pub, append(own[:len(own):len(own)], wire...), messages+1, nil))
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*batches*size {
		t.Errorf("%d batches of %d bytes for %d peers took %d bytes", batches, size, n, grown)
	}
	for i, q := range peers {
		want := wire
		if i == 3 {
			want = append(own[:len(own):len(own)], wire...)
		}
		if got := drain(q); len(got) != batches*len(want) || string(got[:len(want)]) != string(want) {
			t.Fatalf("peer %d has %d bytes, want %d batches of %d", i, len(got), batches, len(want))
		}
	}
}

// TestSendTotalCounts: the sum of the queues does not overflow where an int has 32 bits:
// neither with bytes that many peers share, which count for each, nor with the bound
// itself, whose default is not taken for no bound there.
func TestSendTotalCounts(t *testing.T) {
	t.Parallel()
	const n = 40
	pub, peers := fanned(t, n, Settings{Limits: unlimited(queue.Unbounded), Policy: Disconnect})
	apartPeers(t, pub, peers)
	wire := zmtp.AppendMessage(nil, []byte("all/"), make([]byte, 64<<20))
	must(t, sendWire(pub, wire, 1, nil))
	pub.Lock()
	sum, _ := pub.longest()
	pub.Unlock()
	if limit := pub.Total; sum > limit || sum < limit/2 {
		t.Errorf("%d bytes are queued, bound %d", sum, limit)
	}
}

// TestBytesBeingWrittenCountInTheTotal: a peer that stops reading when its writer has taken a
// long queue holds these bytes. With many such peers the publisher ends those that hold most,
// whatever the policy, and nobody that reads loses anything.
func TestBytesBeingWrittenCountInTheTotal(t *testing.T) {
	t.Parallel()
	const n, total, size = 20, 1 << 20, 10_000
	for _, policy := range []Policy{Drop, Disconnect} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			t.Parallel()
			pub, peers := fanned(t, n+1, Settings{Limits: unlimited(queue.Unbounded), Total: total, Policy: policy})
			apartPeers(t, pub, peers)
			healthy := peers[n]
			body := make([]byte, size)
			for i, q := range peers[:n] {
				for range total / size * 3 / 4 {
					must(t, send(pub, fmt.Appendf(nil, "own/%d/", i), body))
					must(t, send(pub, fmt.Appendf(nil, "own/%d/", n), nil))
					drain(healthy)
				}
				drain(q) // its writer has all of it, and does not come back
				held := 0
				for _, q := range peers {
					if !q.evicted { // the writer of one that is ends
						held += q.out.Status().Held()
					}
				}
				if most := total + total/totalStep + 2*size; held > most {
					t.Fatalf("%d peers hold %d bytes, bound %d", i+1, held, total)
				}
			}
			if s := healthy.out.Status(); s.Drops != 0 || healthy.evicted {
				t.Errorf("the one that takes all has lost %d messages, ended: %v", s.Drops, healthy.evicted)
			}
		})
	}
}
