package blackbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/loopback"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// someTopics returns n topics with different first letters.
func someTopics(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%c/%d", 'A'+i%26, i))
	}
	return all
}

// flood publishes the numbers from first to last-1 under each topic, in turn.
func flood(t testing.TB, pub *sockets.Pub, topics []string, first, last int) {
	t.Helper()
	for n := first; n < last; n++ {
		items := make([][]byte, len(topics))
		for i, topic := range topics {
			items[i] = item(topic, n)
		}
		send(t, pub, items...)
	}
}

// TestOrder: with any numbers of shards and workers, no message is lost or duplicated,
// and the messages of a topic go to one worker, in order.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{1, 0}, {3, 0}, {1, 1}, {1, 7}, {4, 3}} {
		t.Run(fmt.Sprintf("%d shards with %d workers", size[0], size[1]), func(t *testing.T) {
			t.Parallel()
			pub := publisher(t, anyPort)
			l := newLedger()
			b := open(t, Options{
				Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(size[0]), Workers: size[1], Handle: l.handle,
			})
			if want := size[0] * max(size[1], 1); b.Workers() != want {
				t.Errorf("%d workers, want %d", b.Workers(), want)
			}
			topics := someTopics(400)
			flood(t, pub, topics, 0, 50)
			l.wait(t, 20_000)
			must(t, b.Close())
			l.whole(t, topics, 50)
			used := map[int]bool{}
			for _, w := range l.workers {
				used[w] = true
			}
			if len(used) != b.Workers() {
				t.Errorf("%d of %d workers had a share of 400 topics", len(used), b.Workers())
			}
			if received, given, dropped := sum(b.Stats()); received != 20_000 || given != 20_000 || dropped != 0 {
				t.Errorf("%d received, %d given, %d dropped", received, given, dropped)
			}
		})
	}
}

// TestKey: with Options.Key, messages of a topic are divided by key, and messages of
// several topics of a shard with the same key go to one worker, in order.
func TestKey(t *testing.T) {
	t.Parallel()
	const keys, count = 200, 5000
	pub := publisher(t, anyPort)
	var mu sync.Mutex
	workers, next, total := map[int]int{}, map[int]int{}, 0
	b := open(t, Options{
		Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(1), Workers: 4,
		Key: func(m zmtp.WireMessage) []byte { // the last byte of the number
			_, rest := m.Next()
			body, _ := rest.Next()
			return body[len(body)-1:]
		},
		Handle: func(b *Batch) {
			mu.Lock()
			defer mu.Unlock()
			for i := range b.Len() {
				_, n := parse(b.Message(i))
				key := n & 0xff
				if w, known := workers[key]; known && w != b.Worker() {
					t.Errorf("key %d is at worker %d after %d", key, b.Worker(), w)
				}
				workers[key] = b.Worker()
				if n>>8 != next[key] {
					t.Errorf("message %d of key %d comes as number %d", n>>8, key, next[key])
				}
				next[key]++
				total++
			}
		},
	})
	for i := range count {
		send(t, pub, item(someTopics(3)[i%3], i/keys<<8|i%keys))
	}
	eventually(t, "all have come", func() bool { mu.Lock(); defer mu.Unlock(); return total == count })
	must(t, b.Close())
	used := map[int]bool{}
	for _, w := range workers {
		used[w] = true
	}
	if len(used) != 4 {
		t.Errorf("%d of 4 workers had a share of %d keys", len(used), keys)
	}
}

// TestSpreadAll: each message goes once to the shard of its first byte. Only a message
// with an empty topic requires a single shard.
func TestSpreadAll(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			pub := publisher(t, anyPort)
			l := newLedger()
			b := open(t, Options{Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(n), Handle: l.handle})
			topics := []string{}
			for i := range 256 {
				first := string([]byte{byte(i)})
				topics = append(topics, first, first+"long", first+strings.Repeat("x", 300))
			}
			sent := topics
			if n == 1 {
				topics = append(topics, "")
				sent = topics
			} else {
				sent = append([]string{""}, topics...)
			}
			flood(t, pub, sent, 0, 2)
			l.wait(t, 2*len(topics))
			must(t, b.Close())
			l.whole(t, topics, 2)
			for topic, shard := range l.shards {
				if topic != "" && shard != int(topic[0])%n {
					t.Errorf("topic %.10q came to shard %d", topic, shard)
				}
			}
		})
	}
}

// TestTopicOfNoShard: messages whose topic is in no shard are not received.
func TestTopicOfNoShard(t *testing.T) {
	t.Parallel()
	pub := publisher(t, anyPort)
	l := newLedger()
	b := open(t, Options{Connect: []string{pub.LastEndpoint()}, Shards: Spread(2, "A", "B", "C"), Workers: 2, Handle: l.handle})
	flood(t, pub, []string{"A", "D", "B", "", "C", "a"}, 0, 10)
	l.wait(t, 30)
	must(t, b.Close())
	l.whole(t, []string{"A", "B", "C"}, 10)
}

// TestEndpoints: shards can have their own publishers, with the same topics.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	left, right := publisher(t, anyPort), publisher(t, anyPort)
	l := newLedger()
	b := open(t, Options{
		Shards: []Shard{
			{Topics: []string{""}, Connect: []string{left.LastEndpoint()}},
			{Topics: []string{""}, Connect: []string{right.LastEndpoint()}},
		},
		Handle: l.handle,
	})
	flood(t, left, []string{"l"}, 0, 10)
	flood(t, right, []string{"r"}, 0, 10)
	l.wait(t, 20)
	must(t, b.Close())
	l.whole(t, []string{"l", "r"}, 10)
	if l.shards["l"] != 0 || l.shards["r"] != 1 {
		t.Errorf("shards: %v", l.shards)
	}
}

// TestInproc: a publisher in the same process can be used over inproc.
func TestInproc(t *testing.T) {
	t.Parallel()
	const endpoint = "inproc://blackbox-test"
	pub := publisher(t, endpoint)
	l := newLedger()
	b := open(t, Options{Connect: []string{endpoint}, Shards: SpreadAll(2), Workers: 3, Handle: l.handle})
	topics := someTopics(50)
	flood(t, pub, topics, 0, 100)
	l.wait(t, 5000)
	must(t, b.Close())
	l.whole(t, topics, 100)
}

// TestPublishers: with several publishers, each one's messages are in order.
func TestPublishers(t *testing.T) {
	t.Parallel()
	var pubs []*sockets.Pub
	var endpoints, topics []string
	for i := range 3 {
		pubs = append(pubs, publisher(t, anyPort))
		endpoints = append(endpoints, pubs[i].LastEndpoint())
		topics = append(topics, fmt.Sprintf("%c", 'A'+i))
	}
	l := newLedger()
	b := open(t, Options{Connect: endpoints, Shards: Spread(2, topics...), Workers: 2, Handle: l.handle})
	eventually(t, "each shard has three publishers", func() bool {
		s := b.Stats()
		return s.Shards[0].Publishers == 3 && s.Shards[1].Publishers == 3
	})
	must(t, b.WaitSubscribed(testContext(t)))
	var sending sync.WaitGroup
	for i, pub := range pubs {
		sending.Go(func() { flood(t, pub, topics[i:i+1], 0, 2000) })
	}
	sending.Wait()
	l.wait(t, 6000)
	must(t, b.Close())
	l.whole(t, topics, 2000)
}

// TestPublisherRestart: when the publisher is replaced by another one, the shards
// subscribe there. They do not receive messages twice.
func TestPublisherRestart(t *testing.T) {
	t.Parallel()
	host := "tcp://" + loopback.Own()
	pub := publisher(t, host+":*")
	endpoint := pub.LastEndpoint()
	l := newLedger()
	b := open(t, Options{
		Connect: []string{endpoint}, Shards: SpreadAll(3), Workers: 2, Handle: l.handle,
		Socket: sockets.Options{ReconnectInterval: 5 * time.Millisecond},
	})
	topics := someTopics(20)
	flood(t, pub, topics, 0, 50)
	l.wait(t, 1000)
	must(t, pub.Close())
	eventually(t, "no shard has a publisher", func() bool {
		return !slices.ContainsFunc(b.Stats().Shards, func(s ShardStats) bool { return s.Publishers > 0 })
	})
	pub = publisher(t, endpoint)
	must(t, b.WaitSubscribed(testContext(t)))
	flood(t, pub, topics, 50, 100)
	l.wait(t, 2000)
	must(t, b.Close())
	l.whole(t, topics, 100)
}

// TestSlowWorker: a blocked worker blocks its shard when its queue is full, but no other
// shard. When it continues, it gets all of its messages.
func TestSlowWorker(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{0, 2} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			pub := publisher(t, anyPort)
			l := newLedger()
			hold := make(chan struct{})
			b := open(t, Options{
				Connect: []string{pub.LastEndpoint()}, Shards: Spread(2, "A", "B"), Workers: workers, QueueBatches: 2,
				Handle: func(b *Batch) {
					if b.Shard() == 0 {
						<-hold
					}
					l.handle(b)
				},
			})
			// Less for each topic than the publisher's high-water mark, so that it does
			// not block.
			for n := range 300 {
				send(t, pub, item("A", n))
				send(t, pub, item("B", n))
				if n < 3 && workers > 0 || n == 0 { // a batch each: in work, queued, waiting
					eventually(t, "shard 0 has received it", func() bool { return b.Stats().Shards[0].Messages == uint64(n+1) })
				}
			}
			eventually(t, "shard 1 has its messages", func() bool { return l.count() == 300 })
			eventually(t, "the slow worker has what it may have", func() bool {
				held, waits := 0, uint64(0)
				for _, w := range b.Stats().Shards[0].Workers {
					held += w.Held
					waits += w.Waits
				}
				return workers == 0 && held == 1 || workers > 0 && held == 2 && waits == 1
			})
			close(hold)
			l.wait(t, 600)
			must(t, b.Close())
			l.whole(t, []string{"A", "B"}, 300)
		})
	}
}

// TestDrop: with PolicyDrop, a blocked worker loses the messages for which its queue
// has no room, and they are counted; the other worker of its shard loses nothing.
func TestDrop(t *testing.T) {
	t.Parallel()
	pub := publisher(t, anyPort)
	l := newLedger()
	var stuck atomic.Int64 // the blocked worker
	stuck.Store(-1)
	hold := make(chan struct{})
	b := open(t, Options{
		Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(1), Workers: 2, QueueBatches: 3, Policy: PolicyDrop,
		Handle: func(b *Batch) {
			if int64(b.Worker()) == stuck.Load() {
				<-hold
			}
			l.handle(b)
		},
	})
	topics := someTopics(64)
	slow, other := topics[0], ""
	flood(t, pub, topics, 0, 1)
	l.wait(t, len(topics))
	l.mu.Lock()
	for _, topic := range topics {
		if l.workers[topic] != l.workers[slow] {
			other = topic
		}
	}
	stuck.Store(int64(l.workers[slow]))
	l.mu.Unlock()
	eventually(t, "all are released", func() bool {
		w := b.Stats().Shards[0].Workers
		return w[0].Held+w[1].Held == 0
	})
	count := uint64(len(topics))
	alone := func(topic string, n int) { // as a batch of its own
		send(t, pub, item(topic, n))
		count++
		eventually(t, "it is received", func() bool { received, _, _ := sum(b.Stats()); return received == count })
	}
	for n := 1; n <= 10; n++ {
		alone(slow, n)
		alone(other, n)
		eventually(t, "the other worker gets on", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.numbers[other]) == n+1
		})
	}
	eventually(t, "messages are dropped", func() bool { _, _, dropped := sum(b.Stats()); return dropped == 7 })
	if held := b.Stats().Shards[0].Workers[stuck.Load()].Held; held != 3 {
		t.Errorf("the slow worker holds %d batches", held)
	}
	close(hold)
	l.wait(t, int(count)-7)
	alone(slow, 11)
	l.wait(t, int(count)-7)
	must(t, b.Close())
	if want := []int{0, 1, 2, 3, 11}; !slices.Equal(l.numbers[slow], want) {
		t.Errorf("the slow worker got %v, want %v", l.numbers[slow], want)
	}
	if received, given, dropped := sum(b.Stats()); received != count || given != count-7 || dropped != 7 {
		t.Errorf("%d received, %d given, %d dropped, %d sent", received, given, dropped, count)
	}
}

// TestCloseAnyMoment: Close ends a Box at any moment, and all received messages are
// counted.
func TestCloseAnyMoment(t *testing.T) {
	t.Parallel()
	pub, err := sockets.NewPub(sockets.Options{Linger: sockets.LingerNone}) // drops
	must(t, err)
	defer pub.Close()
	must(t, pub.Bind(testContext(t), anyPort))
	topics := someTopics(30)
	ctx := testContext(t)
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			var wire []byte
			for _, topic := range topics {
				wire = append(wire, item(topic, n)...)
			}
			if hooks.SendWire(ctx, pub, wire, len(topics), nil) != nil {
				return
			}
		}
	})
	defer sending.Wait()
	defer close(stop)
	for i := range 60 {
		var handled atomic.Int64
		slow := i%3 == 0
		b, err := New(Options{
			Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(1 + i%4), Workers: i % 3, QueueBatches: 1 + i%5,
			Policy: Policy(i % 2),
			Handle: func(b *Batch) {
				handled.Add(int64(b.Len()))
				if slow {
					time.Sleep(time.Millisecond)
				}
			},
		})
		must(t, err)
		if i%10 > 0 {
			time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
		}
		if i%20 > 10 {
			eventually(t, "something is handled", func() bool { return handled.Load() > 0 })
		}
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
		received, given, dropped := sum(b.Stats())
		if received != given+dropped || given != uint64(handled.Load()) {
			t.Fatalf("%d received, %d given, %d handled, %d dropped", received, given, handled.Load(), dropped)
		}
		for _, s := range b.Stats().Shards {
			for _, w := range s.Workers {
				if w.Held != 0 || w.HeldBytes != 0 {
					t.Fatalf("a worker holds %d batches of %d bytes", w.Held, w.HeldBytes)
				}
			}
		}
	}
}
