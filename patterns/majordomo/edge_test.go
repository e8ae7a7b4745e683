package majordomo

import (
	"errors"
	"math"
	"testing"
	"time"

	"clustermap/sockets"
)

// TestOptionEdges: too large numbers, and durations whose product overflows, are invalid.
func TestOptionEdges(t *testing.T) {
	t.Parallel()
	for _, o := range []WorkerOptions{
		{Broker: "tcp://127.0.0.1:1", Concurrency: MaxConcurrency + 1},
		{Broker: "tcp://127.0.0.1:1", Heartbeat: math.MaxInt64, Liveness: 2},
		{Broker: "tcp://127.0.0.1:1", Heartbeat: time.Hour, Liveness: math.MaxInt32},
	} {
		if _, err := o.withDefaults(); !isOptionError(err) {
			t.Errorf("worker with %d at once, %v, %d: %v", o.Concurrency, o.Heartbeat, o.Liveness, err)
		}
	}
	if _, err := (BrokerOptions{Heartbeat: math.MaxInt64 / 2}).withDefaults(); !isOptionError(err) {
		t.Errorf("broker: %v", err)
	}
}

// TestExpiryForever: a request may wait for as long as can be.
func TestExpiryForever(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{Expiry: math.MaxInt64})
	newRaw(t, endpoint, sockets.Options{}).send("", client01, "nobody", "x")
	eventually(t, "it waits", func() bool { return b.Stats().Requests == 1 })
	b.mu.Lock()
	b.now = int64(time.Since(b.began))
	b.expire()
	b.mu.Unlock()
	if n := b.Stats().Expired; n != 0 {
		t.Errorf("%d expired", n)
	}
}

func isOptionError(err error) bool {
	_, ok := errors.AsType[*OptionError](err)
	return ok
}
