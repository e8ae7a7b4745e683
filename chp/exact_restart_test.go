package chp

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/internal/ledger"
)

// TestOriginsInWireForm: the origins survive being written and read, in the order of use.
func TestOriginsInWireForm(t *testing.T) {
	t.Parallel()
	var o ledger.Clients
	const clients = 5000
	id := func(i int) (id ledger.ID) {
		copy(id[:], fmt.Sprintf("%016d", i))
		return id
	}
	for i := range clients {
		o.Note(id(i), uint64(i+10), i%20, int64(i))
	}
	o.Forgotten = 77
	var read ledger.Clients
	for _, portion := range o.Portions() {
		if !read.Add(portion) {
			t.Fatal("a portion is not understood")
		}
		for n := range min(len(portion), 200) {
			if n != 8 && n != 0 {
				var part ledger.Clients
				part.Add(portion[:n]) // nothing to check but that it does not panic
			}
		}
	}
	if len(read.ByID) != clients || read.Forgotten != 77 {
		t.Fatalf("%d clients, forgotten %d", len(read.ByID), read.Forgotten)
	}
	was, is := slices.Collect(o.Used.All()), slices.Collect(read.Used.All())
	for i := range clients {
		a, b := was[i], is[i]
		if a.ID != b.ID || a.Counter != b.Counter || a.At != b.At || fmt.Sprint(a.Skips) != fmt.Sprint(b.Skips) {
			t.Fatalf("%v, want %v", b, a)
		}
	}
	var none, empty ledger.Clients
	if p := none.Portions(); len(p) != 1 || !empty.Add(p[0]) || len(empty.ByID) != 0 {
		t.Error("no clients do not survive")
	}
}

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
