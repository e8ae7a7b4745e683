package chp

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/sockets"
)

// A burst that is faster than a subscriber reads does not disconnect it: the writer
// is slowed down. (Without SlowestIntake it does, at any speed of the machine: the
// queue is much smaller than the burst.) It runs beside no other test: a subscriber
// that gets no processor for a tenth of a second looks like one that has stopped.
func TestBurstDoesNotDisconnectWhoReads(t *testing.T) {
	stays := func(slowest int) bool {
		s := startServer(t, ServerOptions{SubscriberQueue: 16 << 20, SlowestIntake: slowest})
		var lost atomic.Bool
		ctx := testContext(t)
		sub, err := sockets.NewSub(sockets.Options{
			RecvHWM: -1, RecvHWMBytes: 64 << 10, RecvBuffer: 64 << 10, ReconnectInterval: -1,
			Monitor: func(e sockets.Event) {
				if e.Kind == sockets.EventDisconnected {
					lost.Store(true)
				}
			},
		})
		must(t, err)
		must(t, sub.Subscribe(""))
		must(t, sub.Connect(s.Endpoints().Publisher))
		must(t, sub.WaitSubscribed(ctx))
		const updates = 32_000
		came := make(chan struct{})
		go func() {
			defer close(came)
			var b sockets.Batch
			defer b.Release()
			for n := 0; n < updates && sub.RecvBatch(ctx, &b) == nil; n += b.Len() {
				time.Sleep(time.Millisecond) // 64 KiB a millisecond at most
			}
		}()
		c := startClient(t, s, ClientOptions{Subtrees: []string{"/none/"}})
		must(t, c.WaitActive(ctx))
		value := bytes.Repeat([]byte("v"), 1000)
		for i := range updates {
			must(t, c.Set(ctx, fmt.Sprint("/a/", i%1000), value))
		}
		eventually(t, "the burst has come, or the connection ended", func() bool {
			select {
			case <-came:
				return true
			default:
				return lost.Load()
			}
		})
		ended := lost.Load()
		must(t, sub.Close())
		<-came
		return !ended
	}
	for range 3 { // a machine that stops this process for a second looks like a subscriber that stopped
		if stays(1 << 20) {
			return
		}
	}
	t.Error("the subscriber was disconnected")
}

// A client whose server is restarted again and again, or whose connections break
// as often, is no slow replica: it is ACTIVE again at once, the last time as the first.
func TestBreaksAreNoRelapses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(testContext(t), time.Minute)
	t.Cleanup(cancel)
	server := startServer(t, ServerOptions{})
	proxies, address := newProxies(t, server.Endpoints())
	var ended atomic.Int64
	c, err := NewClient(ClientOptions{Servers: []string{address}, OnFailure: func(string, error) { ended.Add(1) }})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	for range 12 { // waits that double would take more than a minute together
		must(t, c.WaitActive(ctx))
		before := ended.Load()
		proxies[1].each((*link).reset)
		eventually(t, "the session ends", func() bool { return ended.Load() > before })
	}
	must(t, c.WaitActive(ctx))
}
