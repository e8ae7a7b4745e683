package chp

import (
	"strconv"
	"testing"

	"clustermap/chp/commit"
)

// TestExactAcrossRestart: a server that is restarted on its log, with and without a
// checkpoint in between, applies each update once, and no SetSync is uncertain.
func TestExactAcrossRestart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, _ := pairOptions(t)
	po.Pair = nil
	dir := t.TempDir()
	start := func() pairServer {
		o := po
		o.Log, o.Sync = openLog(t, dir), commit.Always()
		return startPairServer(t, o)
	}
	s := start()
	servers := []string{s.Endpoints().Snapshot}
	c, err := NewClient(ClientOptions{Servers: servers, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	defer c.Close()
	stop, wrote := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { wrote <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := c.SetSync(ctx, "/n", []byte(strconv.Itoa(n))); err != nil {
				t.Errorf("update %d: %v", n, err)
				return
			}
		}
	}()
	for i := range 6 {
		before := s.Sequence()
		eventually(t, "updates go on", func() bool { return s.Sequence() > before+20 })
		if i%2 == 1 {
			must(t, s.sequencer.Checkpoint(ctx))
		}
		s.stop()
		s = start()
	}
	close(stop)
	n := <-wrote
	if got, _ := s.Get("/n"); string(got) != strconv.Itoa(n-1) {
		t.Errorf("%q is the last of %d", got, n)
	}
	if r := s.Stats().Repeated; r == 0 {
		t.Log("no update was sent twice to the last server")
	}
}

// TestNewMapIsAnotherMap: a server with an empty directory is not taken for the one
// before.
func TestNewMapIsAnotherMap(t *testing.T) {
	t.Parallel()
	a, stop := serveUntil(t, ServerOptions{Log: openLog(t, t.TempDir())})
	first := a.live.Now().ID
	stop()
	dir := t.TempDir()
	b, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	second := b.live.Now().ID
	stop()
	c, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	third := c.live.Now().ID
	stop()
	if first == second || second != third {
		t.Errorf("%x, %x, then again %x", first, second, third)
	}
}
