package chp

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/sockets"
)

// A great many keys that expire at once do not disconnect a subscriber that reads:
// their deletions are published no faster than updates would be.
func TestExpiryDoesNotDisconnectWhoReads(t *testing.T) {
	t.Parallel()
	const keys = 80_000
	stays := func(slowest int) bool {
		ctx := testContext(t)
		s := startServer(t, ServerOptions{
			SubscriberQueue: 4 << 20, SlowestIntake: slowest, HeartbeatInterval: 50 * time.Millisecond, ExpiryGrace: -1,
			Preload: func(yield func(Entry, error) bool) {
				for i := range keys { // all end at about the same time
					ttl := time.Second
					if !yield(Entry{Key: []byte(fmt.Sprint(strings.Repeat("k", 200), i)), Value: []byte("v"), TTL: ttl}, nil) {
						return
					}
				}
			},
		})
		var lost atomic.Bool
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
		var last atomic.Int64
		reading := make(chan struct{})
		go func() {
			defer close(reading)
			var b sockets.Batch
			defer b.Release()
			for sub.RecvBatch(ctx, &b) == nil {
				m := b.Message(b.Len() - 1)
				_, m = m.Next()
				seq, _ := m.Next()
				last.Store(int64(binary.BigEndian.Uint64(seq)))
				time.Sleep(2 * time.Millisecond) // 64 KiB each time at most
			}
		}()
		eventually(t, "all deletions have come, or the connection ended", func() bool {
			return lost.Load() || s.Len() == 0 && last.Load() == s.Sequence()
		})
		ended := lost.Load()
		must(t, sub.Close())
		<-reading
		return !ended
	}
	for range 3 { // a machine that stops this process for a second looks like a subscriber that stopped
		if stays(256 << 10) {
			return
		}
	}
	t.Error("the subscriber was disconnected")
}
