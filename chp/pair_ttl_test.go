package chp

import (
	"clustermap/chp/internal/order"
	"testing"
	"time"
)

// TestPairTimesToLive: at the other server times to live count from when the update was
// made, however late it comes there, also after a restart.
func TestPairTimesToLive(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dir := t.TempDir()
	bo.Log = openLog(t, dir)
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	c := pairClient(t, po, bo)
	_, err := c.SetSync(ctx, "/before", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	backup.crash()
	g := gated(primary.Server)
	g.q.Between(func(*order.Moment) { g.age = time.Hour }) // the other server gets what was made an hour ago
	_, err = c.SetSync(ctx, "/k", []byte("1"), WithTTL(2*time.Hour))
	must(t, err)

	left := func(s pairServer) (longest time.Duration) {
		for e := range s.All() {
			longest = max(longest, e.TTL)
		}
		return longest
	}
	check := func(s pairServer, when string) {
		t.Helper()
		if d := left(s); d < 50*time.Minute || d > 61*time.Minute {
			t.Errorf("%s: %v are left of an hour", when, d)
		}
	}
	bo.Log = openLog(t, dir)
	backup = startPairServer(t, bo)
	eventually(t, "the backup follows again", primary.inSync)
	check(backup, "the backup")
	backup.crash()
	primary.crash() // it would say what is left by its own clock, which knows nothing of the hour
	bo.Log = openLog(t, dir)
	backup = startPairServer(t, bo)
	check(backup, "the backup after a restart")
}
