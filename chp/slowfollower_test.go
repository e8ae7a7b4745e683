package chp

import (
	"fmt"
	"testing"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/sockets"
)

// TestSlowFollowerSlowsIntake: with one acknowledgement a follower that takes nothing
// makes the server take updates more slowly, before the tail no longer reaches back to
// where the follower is.
func TestSlowFollowerSlowsIntake(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	po.Pair.Acks, bo.Pair.Acks = 1, 1
	po.Pair.Timeout, bo.Pair.Timeout = time.Hour, time.Hour
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	follows := func(hasMap bool) func() bool {
		return func() (yes bool) {
			primary.sequencer.Between(func(*order.Moment) {
				f := primary.pair.Journal().Follower()
				yes = f != nil && f.Live() && (!hasMap || f.HasMap() && f.Have >= 0)
			})
			return yes
		}
	}
	eventually(t, "the backup follows", follows(true))
	backup.crash()

	// In its place comes one that asks for everything and reads nothing.
	f := dialFollower(t, primary, func(o *sockets.Options) { o.RecvHWM, o.RecvHWMBytes = 1, 1 })
	r := primary.asks()
	f.say(nameFollow, r.append(nil))
	eventually(t, "it follows", follows(false))
	c, err := NewClient(ClientOptions{Servers: []string{primary.Endpoints().Snapshot}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	defer c.Close()
	value := make([]byte, 256<<10)
	for i := 0; primary.fullest() <= order.PaceFrom; i++ {
		if err := c.Set(ctx, fmt.Sprintf("/%d", i%10), value); err != nil {
			t.Fatalf("update %d: %v; the tail is %.2f full", i, err, primary.fullest())
		}
	}
}
