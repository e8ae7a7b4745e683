package chp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
)

// TestCheckpointKeepsHistory: after a restart on a checkpoint a server knows its last
// update, though that was a deletion, and all reigns.
func TestCheckpointKeepsHistory(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{3, 0} {
		for _, more := range []bool{false, true} {
			t.Run(fmt.Sprintf("keys=%d/more=%v", keys, more), func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				dir := t.TempDir()
				o := ServerOptions{Log: openLog(t, dir), Sync: commit.Never()}
				s, stop := serveUntil(t, o)
				c := startClient(t, s, ClientOptions{})
				q := &s.sequencer
				set := func(again bool) {
					if again { // it stops being the active server, and goes on at once
						q.Yield()
						q.Lead(0, false, 0, -1)
					}
					for i := range keys {
						must(t, c.Set(ctx, fmt.Sprintf("/%d", i), []byte("v")))
					}
					must(t, c.Set(ctx, "/deleted", []byte("v")))
					_, err := c.DeleteSync(ctx, "/deleted")
					must(t, err)
				}
				for i := range 3 {
					set(i > 0)
				}
				must(t, q.Checkpoint(ctx))
				if more {
					set(false)
					set(true)
				}
				want := historyOf(s)
				if len(want) < 3 {
					t.Fatalf("reigns %v", want)
				}
				must(t, c.Close())
				stop()
				o.Log = openLog(t, dir)
				s, _ = serveUntil(t, o)
				if got := historyOf(s); !slices.Equal(got, want) {
					t.Errorf("reigns %v, want %v", got, want)
				}
				if s.Len() != keys || s.Sequence() < want[len(want)-1].Last {
					t.Errorf("%d keys, sequence %d", s.Len(), s.Sequence())
				}
			})
		}
	}
}

// TestPairReportsUnknownReign: the updates of a reign of which the active server has
// never heard are reported before they are given up.
func TestPairReportsUnknownReign(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	reported := make(chan string, 100)
	po.Pair.OnDiverged = func(d Divergence) {
		for e := range d.Entries {
			reported <- string(e.Key)
		}
	}
	start := func(i int) pairServer {
		o := []ServerOptions{po, bo}[i]
		o.Log = openLog(t, dirs[i])
		return startPairServer(t, o)
	}
	c := pairClient(t, po, bo)
	set := func(key string) {
		t.Helper()
		_, err := c.SetSync(ctx, key, []byte("v"))
		must(t, err)
	}
	primary, backup := start(0), start(1)
	set("/both")
	eventually(t, "the backup follows", primary.inSync)
	set("/both/2")
	// Each serves alone, and then they meet. The one that took over continues.
	primary.crash()
	set("/backup/1")
	set("/backup/2")
	backup.crash()
	primary = start(0)
	set("/primary/1")
	set("/primary/2")
	_ = start(1)
	eventually(t, "the primary has the backup's map", func() bool {
		_, ok := primary.Get("/backup/2")
		return ok
	})
	close(reported)
	var got []string
	for key := range reported {
		got = append(got, key)
	}
	slices.Sort(got)
	if want := []string{"/primary/1", "/primary/2"}; !slices.Equal(got, want) {
		t.Errorf("reported %v, want %v", got, want)
	}
}

// TestPairKeepsUpdatesThatCannotBeReported: as long as a program cannot keep the updates that a
// server is to discard, they are not discarded, and reported again.
func TestPairKeepsUpdatesThatCannotBeReported(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	var full atomic.Bool
	full.Store(true)
	calls := make(chan string, 100)
	po.Pair.OnDiverged = func(d Divergence) {
		if full.Load() {
			d.Fail(errors.New("no space"))
		}
		for e := range d.Entries {
			calls <- string(e.Key)
		}
	}
	var said lockedLog
	po.Logger = said.logger()
	_, primary, _ := apart(t, po, bo)
	for range 2 {
		if key := <-calls; key != "/new" {
			t.Errorf("%s is reported", key)
		}
		if _, ok := primary.Get("/new"); !ok {
			t.Error("the update is discarded, though it could not be kept")
		}
	}
	full.Store(false)
	eventually(t, "the primary has the backup's map", func() bool { _, ok := primary.Get("/backup"); return ok })
	eventually(t, "it says that it discards them", func() bool { return strings.Contains(said.String(), "discarded updates that") })
	if text := said.String(); !strings.Contains(text, "no space") || strings.Count(text, "discarded updates that") != 1 {
		t.Errorf("the log says: %s", text)
	}
}

func historyOf(s *Server) (all []state.Reign) {
	s.sequencer.Between(func(now *order.Moment) { all = now.State.Terms.History() })
	return all
}
