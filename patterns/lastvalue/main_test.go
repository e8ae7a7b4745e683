package lastvalue

import (
	"context"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"

	"go.uber.org/goleak"
)

const (
	hang    = testenv.Hang
	anyPort = testenv.AnyPort
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a cache with a publisher.
type rig struct {
	t        testing.TB
	ctx      context.Context
	cache    *Cache
	pub      *sockets.Pub
	endpoint string // for subscribers
	sent     uint64 // messages that were published
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	r := &rig{t: t, ctx: testContext(t)}
	var err error
	r.cache, err = New(o)
	must(t, err)
	t.Cleanup(func() { must(t, r.cache.Close()) })
	r.endpoint, err = r.cache.Bind(r.ctx, anyPort)
	must(t, err)
	r.pub, err = sockets.NewPub(sockets.Options{SendHWM: -1, FullPolicy: sockets.PolicyBlock})
	must(t, err)
	t.Cleanup(func() { r.pub.Close() })
	must(t, r.pub.Bind(r.ctx, "tcp://"+loopback.Own()+":*")) // a test closes it
	must(t, r.cache.ConnectPublisher(r.pub.LastEndpoint()))
	must(t, r.pub.WaitSubscribers(r.ctx, "", 1))
	return r
}

func frames(message ...string) [][]byte {
	all := make([][]byte, len(message))
	for i, f := range message {
		all[i] = []byte(f)
	}
	return all
}

// publish sends a message.
func (r *rig) publish(message ...string) {
	r.t.Helper()
	must(r.t, r.pub.Send(r.ctx, frames(message...)...))
	r.sent++
}

// settle waits until the cache has all published messages.
func (r *rig) settle() {
	r.t.Helper()
	eventually(r.t, "the cache has all messages", func() bool { return r.cache.Stats().Messages == r.sent })
}

// subscriber is a SUB connected to the cache.
func (r *rig) subscriber(topics ...string) *sockets.Sub {
	r.t.Helper()
	return r.subscriberWith(sockets.Options{RecvHWM: -1}, topics...)
}

func (r *rig) subscriberWith(o sockets.Options, topics ...string) *sockets.Sub {
	r.t.Helper()
	sub, err := sockets.NewSub(o)
	must(r.t, err)
	r.t.Cleanup(func() { sub.Close() })
	for _, topic := range topics {
		must(r.t, sub.Subscribe(topic))
	}
	must(r.t, sub.Connect(r.endpoint))
	return sub
}

// answered waits until the cache has answered n subscriptions in total.
func (r *rig) answered(n uint64) {
	r.t.Helper()
	eventually(r.t, "the subscriptions are answered", func() bool {
		s := r.cache.Stats()
		return s.Subscriptions == n && s.Joining == 0
	})
}

func text(m sockets.Message) string {
	parts := make([]string, len(m))
	for i, f := range m {
		parts[i] = string(f)
	}
	return strings.Join(parts, "|")
}

// wants receives messages and compares them, their frames joined by |.
func (r *rig) wants(sub *sockets.Sub, want ...string) {
	r.t.Helper()
	for i, w := range want {
		m, err := sub.Recv(r.ctx)
		if err != nil {
			r.t.Fatalf("message %d, %q: %v", i, w, err)
		}
		if got := text(m); got != w {
			r.t.Fatalf("message %d is %q, want %q", i, got, w)
		}
	}
}

// upTo receives messages up to the given one, and returns those before it, sorted.
func (r *rig) upTo(sub *sockets.Sub, end string) (all []string) {
	r.t.Helper()
	for {
		m, err := sub.Recv(r.ctx)
		must(r.t, err)
		if text(m) == end {
			slices.Sort(all)
			return all
		}
		all = append(all, text(m))
	}
}
