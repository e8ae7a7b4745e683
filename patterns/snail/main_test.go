package snail

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// clock is a clock that a test sets.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(1_700_000_000e9)
	return c
}

func (c *clock) now() time.Time      { return time.Unix(0, c.ns.Load()) }
func (c *clock) add(d time.Duration) { c.ns.Add(int64(d)) }

// rig is a publisher and a subscriber, each with its own clock.
type rig struct {
	t     testing.TB
	ctx   context.Context
	pub   *sockets.Pub
	out   *Publisher
	sub   *Subscriber
	there *clock // the publisher's
	here  *clock // the subscriber's
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	r := &rig{t: t, ctx: testContext(t), there: newClock(), here: newClock()}
	var err error
	r.pub, err = sockets.NewPub(sockets.Options{SendHWM: -1})
	must(t, err)
	t.Cleanup(func() { r.pub.Close() })
	must(t, r.pub.Bind(r.ctx, anyPort))
	r.out = NewPublisher(r.pub, PublisherOptions{Sequence: o.Sequence, Now: r.there.now})
	o.Endpoints = []string{r.pub.LastEndpoint()}
	o.Now = r.here.now
	o.Socket.RecvHWM = -1
	if o.Pause == 0 {
		o.Pause = time.Millisecond
	}
	o.Socket.ReconnectInterval = time.Millisecond
	r.sub, err = NewSubscriber(o)
	must(t, err)
	t.Cleanup(func() { must(t, r.sub.Close()) })
	r.connected()
	return r
}

// connected waits until the subscriber is connected.
func (r *rig) connected() {
	r.t.Helper()
	must(r.t, r.pub.WaitSubscribers(r.ctx, "x", 1))
}

// pass advances both clocks.
func (r *rig) pass(d time.Duration) {
	r.there.add(d)
	r.here.add(d)
}

// send sends messages of one frame and a stamp.
func (r *rig) send(messages ...string) {
	r.t.Helper()
	for _, m := range messages {
		must(r.t, r.out.Send(r.ctx, []byte(m)))
	}
}

// wants receives a message and compares its first frame and its delay.
func (r *rig) wants(want string, delay time.Duration) Lag {
	r.t.Helper()
	m, lag, err := r.sub.Next(r.ctx)
	if err != nil {
		r.t.Fatalf("%s: %v", want, err)
	}
	if body, _ := m.Next(); string(body) != want || lag.Delay != delay {
		r.t.Fatalf("got %q with a delay of %v, want %s with %v", body, lag.Delay, want, delay)
	}
	return lag
}

func shown(m sockets.Message) string {
	parts := make([]string, len(m))
	for i, f := range m {
		parts[i] = string(f)
	}
	return strings.Join(parts, "|")
}
