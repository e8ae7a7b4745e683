package chp

import (
	"fmt"
	"testing"
	"time"

	"clustermap/patterns/binarystar"
)

// fillLog makes a log of a server that is alone, with some keys.
func fillLog(t testing.TB, dir string, keys int) {
	t.Helper()
	ctx := testContext(t)
	alone, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	c := startClient(t, alone, ClientOptions{})
	for i := range keys {
		_, err := c.SetSync(ctx, fmt.Sprintf("/%d", i), []byte("v"))
		must(t, err)
	}
	must(t, c.Close())
	stop()
}

// TestPairEmptyActiveYields: a server that became active with an empty map, because it
// started without hearing of the other one, gives way to that one if it has data.
func TestPairEmptyActiveYields(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dir := t.TempDir()
	fillLog(t, dir, 10)
	bo.Log = openLog(t, dir)
	bo.Pair.OnDiverged = func(d Divergence) { t.Errorf("updates up to %d are given up", d.Last) }

	primary := startPairServer(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(ctx))
	if !primary.active() {
		t.Fatal("the primary does not serve alone")
	}
	backup := startPairServer(t, bo)
	eventually(t, "the one that has the map is active", func() bool { return backup.active() && !primary.active() })
	eventually(t, "the other one copies it", func() bool { return primary.Len() == 10 })
	eventually(t, "clients get it", func() bool { return c.Len() == 10 })
	if backup.Len() != 10 {
		t.Errorf("%d keys are left", backup.Len())
	}
}

// TestPairRestartsWithNothing: a primary in memory that restarts, and does not hear the
// backup, does not take the map away from it, though it is in the same epoch.
func TestPairRestartsWithNothing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	bo.Pair.Timeout = time.Hour // it does not take over by itself
	bo.Pair.OnDiverged = func(d Divergence) { t.Errorf("updates up to %d are given up", d.Last) }
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	only := ClientOptions{Servers: []string{bo.Pair.Peer}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()}
	c, err := NewClient(only)
	must(t, err)
	defer c.Close()
	_, err = c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	primary.crash()
	po.Pair.PeerState = "tcp://127.0.0.1:1" // where no server sends its state
	startPairServer(t, po)
	eventually(t, "the backup is active", backup.active)
	if _, ok := backup.Get("/a"); !ok {
		t.Error("the key is lost")
	}
}

// apart starts a pair whose servers have served one after the other. Both had /both; then the
// backup was alone and took /backup; then the primary, which had lost everything, was alone and
// took /new; last the backup returns with its log.
func apart(t *testing.T, po, bo ServerOptions) (c *Client, primary, backup pairServer) {
	t.Helper()
	ctx, dir := testContext(t), t.TempDir()
	c = pairClient(t, po, bo)
	set := func(key string) {
		t.Helper()
		_, err := c.SetSync(ctx, key, []byte("v"))
		must(t, err)
	}
	first := startPairServer(t, po)
	bo.Log = openLog(t, dir)
	backup = startPairServer(t, bo)
	set("/both")
	eventually(t, "the backup follows", first.inSync)
	first.crash()
	set("/backup")
	backup.crash()
	primary = startPairServer(t, po)
	set("/new")
	bo.Log = openLog(t, dir)
	return c, primary, startPairServer(t, bo)
}

// TestPairOldReignYields: a server that has lost its data and its epoch, became active and
// took updates, gives way to the other one, which has served a newer reign.
func TestPairOldReignYields(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	reported := make(chan string, 100)
	po.Pair.OnDiverged = func(d Divergence) {
		for e := range d.Entries {
			reported <- string(e.Key)
		}
	}
	c, primary, backup := apart(t, po, bo)
	eventually(t, "the backup is active", func() bool { return backup.active() && !primary.active() })
	eventually(t, "the primary has its map", func() bool { return primary.Len() == 2 })
	if key := <-reported; key != "/new" || len(reported) > 0 {
		t.Errorf("%s and %d more keys are given up", key, len(reported))
	}
	// An update sent to the primary while it ends may be lost, so first wait for the backup.
	eventually(t, "the client follows the backup", func() bool { return c.State() == StateActive && c.Server() == po.Pair.Peer })
	_, err := c.SetSync(ctx, "/more", []byte("v"))
	must(t, err)
	if backup.Len() != 3 {
		t.Errorf("%d keys", backup.Len())
	}
}

// TestPairActiveRestarts: an active server that restarts before the passive one has a copy
// of its map goes on, and keeps the map.
func TestPairActiveRestarts(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dir := t.TempDir()
	po.Log = openLog(t, dir)
	primary := startPairServer(t, po)
	c := pairClient(t, po, bo)
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	bo.Pair.Peer = bo.Pair.PeerState // where no server sends a map
	backup := startPairServer(t, bo)
	eventually(t, "the backup is passive", func() bool { return backup.pair.Node().State() == binarystar.StatePassive })
	primary.crash()
	po.Log = openLog(t, dir)
	primary = startPairServer(t, po)
	eventually(t, "one is active", func() bool { return primary.active() || backup.active() })
	if _, ok := primary.Get("/a"); !ok || backup.active() {
		t.Errorf("the key is there: %v; the backup, which has nothing, is active: %v", ok, backup.active())
	}
}
