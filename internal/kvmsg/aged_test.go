package kvmsg

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestAgedGrowth: AgedGrowth is enough for every remaining time to live in place of every
// original one.
func TestAgedGrowth(t *testing.T) {
	t.Parallel()
	most := 0
	for _, props := range []string{"ttl=1", "ttl=1\n", "ttl=.5\n", "ttl=30.25\n", strings.Repeat("a", 247) + "=\nttl=1\n"} {
		r := Record(AppendRecord(nil, []byte("/k"), 7, nil, []byte(props), []byte("v")))
		for _, ttl := range []time.Duration{1, time.Hour, MaxTTL - time.Millisecond, MaxTTL} {
			aged := Record(AppendAged(nil, r, ttl))
			most = max(most, len(aged)-len(r))
			if got := TTLOf(aged.Props()); got < ttl || got >= ttl+time.Millisecond || !bytes.Equal(aged.Value(), r.Value()) {
				t.Errorf("%q with %v is %q, %v", r, ttl, aged, got)
			}
		}
	}
	if most > AgedGrowth || most < AgedGrowth-1 {
		t.Errorf("grew by %d, AgedGrowth is %d", most, AgedGrowth)
	}
}
