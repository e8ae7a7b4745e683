package blackbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"clustermap/internal/hooks"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

const (
	anyPort = testenv.AnyPort
	hang    = testenv.Hang
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// publisher is a PUB that waits for its subscribers instead of dropping.
func publisher(t testing.TB, endpoint string) *sockets.Pub {
	t.Helper()
	pub, err := sockets.NewPub(sockets.Options{FullPolicy: sockets.PolicyBlock, Linger: sockets.LingerForever})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		pub.CloseContext(ctx)
	})
	must(t, pub.Bind(testContext(t), endpoint))
	return pub
}

// open makes a Box and waits until it is subscribed.
func open(t testing.TB, o Options) *Box {
	t.Helper()
	b, err := New(o)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	must(t, b.WaitSubscribed(testContext(t)))
	return b
}

// item is a message of two frames: a topic, and its number for this topic.
func item(topic string, n int) []byte {
	return zmtp.AppendMessage(nil, []byte(topic), binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func parse(m zmtp.WireMessage) (topic string, n int) {
	key, rest := m.Next()
	body, _ := rest.Next()
	return string(key), int(binary.BigEndian.Uint64(body))
}

// send publishes messages in one piece.
func send(t testing.TB, pub *sockets.Pub, items ...[]byte) {
	t.Helper()
	must(t, hooks.SendWire(testContext(t), pub, slices.Concat(items...), len(items), nil))
}

// ledger records the handled messages.
type ledger struct {
	mu      sync.Mutex
	total   int
	numbers map[string][]int // by topic, in order
	workers map[string]int   // the first worker of each topic
	shards  map[string]int
	faults  []string
}

func newLedger() *ledger {
	return &ledger{numbers: map[string][]int{}, workers: map[string]int{}, shards: map[string]int{}}
}

// handle records a batch, and checks that a topic stays with its worker.
func (l *ledger) handle(b *Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range b.Len() {
		topic, n := parse(b.Message(i))
		if w, known := l.workers[topic]; !known {
			l.workers[topic], l.shards[topic] = b.Worker(), b.Shard()
		} else if w != b.Worker() {
			l.faults = append(l.faults, fmt.Sprintf("topic %q is at worker %d after %d", topic, b.Worker(), w))
		}
		l.numbers[topic] = append(l.numbers[topic], n)
		l.total++
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// wait waits for n messages.
func (l *ledger) wait(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages", n), func() bool { return l.count() >= n })
}

// whole checks that each topic has the numbers from 0 to n-1, each once and in order.
func (l *ledger) whole(t testing.TB, topics []string, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		t.Error(f)
	}
	if len(l.numbers) != len(topics) {
		t.Errorf("%d topics, want %d", len(l.numbers), len(topics))
	}
	for _, topic := range topics {
		got := l.numbers[topic]
		if len(got) != n {
			t.Errorf("%d messages of topic %q, want %d", len(got), topic, n)
			continue
		}
		for i, m := range got {
			if m != i {
				t.Errorf("message %d of topic %q is number %d", i, topic, m)
				break
			}
		}
	}
}

// sum adds up the counters of all workers.
func sum(s Stats) (received, given, dropped uint64) {
	for _, shard := range s.Shards {
		received += shard.Messages
		for _, w := range shard.Workers {
			given += w.Messages
			dropped += w.Dropped
		}
	}
	return received, given, dropped
}
