package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// counted returns what the subscriptions of all peers count.
func (s *subscriptions) counted() (used, peers int) {
	s.Lock()
	defer s.Unlock()
	return s.used, len(s.peers)
}

// TestSubscriptionsOfAllPeersHaveOneTotal: at the limit the peers that have most are
// disconnected, with a typed error, and those that have few are served as before, also
// those that come late. When all have gone nothing is counted.
func TestSubscriptionsOfAllPeersHaveOneTotal(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, Options) *publisher{
		"PUB": func(t *testing.T, o Options) *publisher {
			p := bind(t, NewPub, o)
			return &p.publisher
		},
		"XPUB": func(t *testing.T, o Options) *publisher {
			o.RecvHWM = Unlimited
			p := bind(t, NewXPub, o)
			return &p.publisher
		},
		"XPUB, manual": func(t *testing.T, o Options) *publisher {
			o.RecvHWM, o.XPubManual = Unlimited, true
			p := bind(t, NewXPub, o)
			return &p.publisher
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most, peers, topics, size = 1 << 20, 8, 20, 10_000
			seen := newEvents()
			pub := open(t, Options{MaxSubscriptionBytes: most, Monitor: seen.tell})
			honest := dialRaw(t, pub.LastEndpoint()).greet("SUB", nil)
			honest.send(zmtp.AppendSubscribe(nil, []byte("honest")))
			honest.sync()
			var greedy []*raw
			for i := range peers {
				r := dialRaw(t, pub.LastEndpoint()).greet("SUB", nil)
				for j := range topics {
					// It may be refused meanwhile.
					_, _ = r.conn.Write(zmtp.AppendSubscribe(nil, fmt.Append(nil, i, " ", j, strings.Repeat("t", size))))
				}
				_ = r.trySync()
				greedy = append(greedy, r)
				if used, _ := pub.subs.counted(); used > most {
					t.Fatalf("%d bytes are counted", used)
				}
			}
			late := dialRaw(t, pub.LastEndpoint()).greet("SUB", nil)
			late.send(zmtp.AppendSubscribe(nil, []byte("late")))
			late.sync()
			honest.send(zmtp.AppendSubscribe(nil, []byte("again")))
			honest.sync()
			if e := seen.await(t, EventDisconnected); !errors.Is(e.Err, ErrTooManySubscriptions) {
				t.Errorf("%v", e.Err)
			}
			if name != "XPUB, manual" {
				must(t, pub.Send(t.Context(), []byte("late")))
				if m := late.message(); string(m[0]) != "late" {
					t.Errorf("%q", m)
				}
			}
			for _, r := range append(greedy, honest, late) {
				r.conn.Close()
			}
			eventually(t, "nothing is counted", func() bool {
				used, peers := pub.subs.counted()
				return used == 0 && peers == 0 && pub.Subscriptions() == 0
			})
		})
	}
}

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
			pub := open(t, NewPub, Options{MaxSubscriptionBytes: Unlimited})
			s := &pub.subs
			pipes := make([]*pipe, c.peers)
			for i := range pipes {
				pipes[i] = newPipe(&pub.socket, "tcp://a:1", false)
				s.attach(pipes[i], &Peer{pipe: pipes[i]})
			}
			before := heap()
			var b []byte
			for i := range c.topics {
				for peer, q := range pipes {
					b = c.topic(b[:0], peer, i)
					if _, err := s.subscribe(q, b, unbounded); err != nil {
						t.Fatal(err)
					}
				}
			}
			occupied := heap() - before
			if occupied > s.used {
				t.Errorf("%d bytes are occupied, %d count", occupied, s.used)
			}
			t.Logf("%d bytes are occupied, %d count", occupied, s.used)
			for _, q := range pipes {
				s.forget(q)
			}
			if left := heap() - before; left > occupied/10+1<<16 || s.used != 0 {
				t.Errorf("%d bytes of %d are left, %d count", left, occupied, s.used)
			}
			runtime.KeepAlive(pipes)
		})
	}
}

// TestSubscriberThatStaysKeepsNoMemoryOfOthers: topics that are prefixes of long ones do not
// keep the memory of these when they have gone.
func TestSubscriberThatStaysKeepsNoMemoryOfOthers(t *testing.T) {
	// Not parallel: it looks at the whole heap.
	const topics, size = 1000, 4000
	pub := open(t, NewPub, Options{})
	s := &pub.subs
	stays, goes := newPipe(&pub.socket, "tcp://a:1", false), newPipe(&pub.socket, "tcp://a:2", false)
	for _, q := range []*pipe{stays, goes} {
		s.attach(q, &Peer{pipe: q})
	}
	before := heap()
	for i := range topics {
		_, err := s.subscribe(goes, fmt.Append(nil, i, "/", strings.Repeat("t", size)), topics)
		must(t, err)
		_, err = s.subscribe(stays, fmt.Append(nil, i, "/"), topics)
		must(t, err)
	}
	s.forget(goes)
	if left := heap() - before; left > topics*size/4 {
		t.Errorf("%d bytes are left", left)
	}
	runtime.KeepAlive(pub)
}

// TestHeaviestIsOfTheClientThatHoldsMost: many small connections of one client count like a
// large one.
func TestHeaviestIsOfTheClientThatHoldsMost(t *testing.T) {
	t.Parallel()
	type holder struct {
		client *queue.Client
		bytes  int
	}
	a, b := new(queue.Client), new(queue.Client)
	all := []holder{{b, 50}, {a, 20}, {a, 21}, {a, 20}, {b, 0}}
	got := heaviest(func(yield func(holder) bool) {
		for _, h := range all {
			if !yield(h) {
				return
			}
		}
	}, func(h holder) (*queue.Client, int) { return h.client, h.bytes })
	if got != all[2] {
		t.Errorf("%+v", got)
	}
}
