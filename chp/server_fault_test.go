package chp

import (
	"errors"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/internal/testenv"
)

// If the log fails before Serve, the server stays open. Calls that wait for the disk end
// all the same, with the log's error, and Close reports it.
func TestServerLogFailsBeforeServe(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	log := &failingLog{openLog(t, t.TempDir()), make(chan struct{})}
	s, err := NewServer(ServerOptions{Log: log, Sync: commit.Always(), Logger: quiet()})
	must(t, err)
	_, err = s.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	close(log.fail)
	if _, err := s.SetSync(ctx, "/a", []byte("2")); !errors.Is(err, errDisk) {
		t.Errorf("SetSync: %v", err)
	}
	if err := s.Flush(ctx); !errors.Is(err, errDisk) {
		t.Errorf("Flush: %v", err)
	}
	if err := s.Close(); !errors.Is(err, errDisk) {
		t.Errorf("Close: %v", err)
	}
	must(t, s.Close())
}

// A Set that waits for room ends when the log fails.
func TestServerLogFailsWhileFull(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	log := &failingLog{openLog(t, t.TempDir()), make(chan struct{})}
	s, err := NewServer(ServerOptions{Log: log, Sync: commit.Always(), Logger: quiet()})
	must(t, err)
	defer s.Close()
	q := &s.sequencer
	q.Halt(true)
	set := testenv.Blocked(t, "chp.(*Server).Set", func() error { return s.Set(ctx, "/a", []byte("1")) })
	close(log.fail)
	q.Between(func(*order.Moment) { q.Journal().Append(state.Head{First: 1, Count: 1}, nil, 0) })
	if err := <-set; !errors.Is(err, errDisk) {
		t.Errorf("Set: %v", err)
	}
}

// Updates that were accepted and lost, because the server stopped being the active one
// before it published them, are an error of the next Flush, whenever that is called.
func TestFlushReportsLostUpdates(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	primary := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(ctx))
	hold(primary.Server)
	must(t, primary.Set(ctx, "/held", []byte("1")))
	primary.pair.Yield()
	if err := primary.Flush(ctx); !errors.Is(err, ErrUncertain) || !errors.Is(err, ErrStandby) {
		t.Errorf("Flush after the update was lost: %v", err)
	}
	must(t, primary.Flush(ctx)) // reported once
}

// A watch that begins while a server becomes passive does not report what is not committed,
// and then the later updates.
func TestServerWatchDuringYield(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	hold(s)
	must(t, s.Set(ctx, "/held", []byte("1")))
	q := &s.sequencer
	q.Yield() // the first half of Pair.Yield, which then disconnects the clients
	w := watchServer(t, s)
	nothingButSynced(t, w)
	q.Surrender() // the active server has the update
	wantChanges(t, w, "set /held=1 set")
}
