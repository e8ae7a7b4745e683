package chp

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"clustermap/chp/commit"
	pairjournal "clustermap/chp/internal/journal/pair"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/partner"
)

// TestPairInSync: the servers are not in sync before the other one has all that was
// published.
func TestPairInSync(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	r := s.asks()
	_, err = c.SetSync(ctx, "/b", []byte("1"))
	must(t, err)
	f := dialFollower(t, s)
	f.say(nameFollow, r.append(nil))
	_, err = f.Recv(ctx)
	must(t, err)
	f.have(r.last)
	eventually(t, "updates wait for the follower", s.inSync2)
	if st := s.Status(); st.InSync || st.Lag != 1 {
		t.Errorf("in sync: %v, lag %d", st.InSync, st.Lag)
	}
	_, err = f.Recv(ctx) // BATCH: it has been sent the rest
	must(t, err)
	f.have(s.newest())
	eventually(t, "they are in sync", func() bool { return s.Status().InSync })
}

// TestPairLagOfFollowerWithoutMap: how many updates a server lacks that is sent the whole map
// cannot be said by sequences, which begin with the time of a clock.
func TestPairLagOfFollowerWithoutMap(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	f := dialFollower(t, s)
	f.say(nameFollow, new(followRequest).append(nil))
	for m := [][]byte(nil); len(m) == 0 || string(m[0]) != "DONE"; {
		m, err = f.Recv(ctx)
		must(t, err)
	}
	if st := s.Status(); st.InSync || st.Lag != -1 {
		t.Errorf("in sync: %v, lag %d", st.InSync, st.Lag)
	}
	f.have(s.newest())
	eventually(t, "it lacks nothing", func() bool { return s.Status().Lag == 0 })
}

// TestPairCatchesUp: a follower that is always behind, because updates come as fast as it
// takes them, is waited for after a time.
func TestPairCatchesUp(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	has := s.newest()
	r := s.asks()
	r.last = has
	for range pairjournal.CaughtUp {
		must(t, c.Set(ctx, "/b", []byte("1")))
	}
	must(t, c.Flush(ctx))
	f := dialFollower(t, s)
	f.say(nameFollow, r.append(nil))
	_, err = f.Recv(ctx)
	must(t, err)
	eventually(t, "updates wait for the follower", func() bool {
		f.have(has)
		return s.inSync2()
	})
	if st := s.Status(); st.InSync || st.Lag != pairjournal.CaughtUp {
		t.Errorf("in sync: %v, lag %d", st.InSync, st.Lag)
	}
}

// unsyncedLog is a log whose flushes wait.
type unsyncedLog struct {
	commit.Log
	wait chan struct{}
}

func (l *unsyncedLog) Sync() error {
	<-l.wait
	return l.Log.Sync()
}

// TestPairWaitsForOwnDisk: while updates wait for this server's disk alone, the other
// server is not taken for one that stands still.
func TestPairWaitsForOwnDisk(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	log := &unsyncedLog{openLog(t, t.TempDir()), make(chan struct{})}
	var once sync.Once
	release := func() { once.Do(func() { close(log.wait) }) }
	defer release()
	po.Log, po.Sync = log, commit.Always()
	s := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(ctx))
	f := dialFollower(t, s)
	s.inSyncWith(f)
	done := make(chan error, 1)
	go func() {
		_, err := c.SetSync(ctx, "/a", []byte("1"))
		done <- err
	}()
	for m, err := f.Recv(ctx); string(m[0]) != nameBatch; m, err = f.Recv(ctx) {
		must(t, err)
	}
	f.have(s.newest())
	eventually(t, "the follower has it", func() bool {
		has := false
		s.sequencer.Between(func(now *order.Moment) { has = s.pair.Journal().Follower().Have == now.Newest.Last })
		return has
	})
	s.sequencer.Between(func(now *order.Moment) {
		for range 2 * partner.LooksPerTimeout {
			s.pair.Journal().Look(now.Newest.Last, true, true)
		}
	})
	eventually(t, "the server has looked", func() bool {
		idle := 0
		s.sequencer.Between(func(*order.Moment) { idle = s.pair.Journal().Follower().Idle })
		return idle == 0
	})
	if !s.inSync2() {
		t.Error("updates do not wait for a follower that has everything")
	}
	release()
	must(t, <-done)
}

// logLines keeps the lines of a log.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logLines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// TestPairFollowsInVain: a passive server that does not get to follow the active one
// warns of it.
func TestPairFollowsInVain(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	var lines logLines
	bo.Pair.Peer = bo.Pair.PeerState // a mistake: no server sends a map there
	bo.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
	startPairServer(t, po)
	startPairServer(t, bo)
	eventually(t, "the backup warns", func() bool { return lines.has("does not follow the active server") })
}

// TestPairLogSaysThatAnOutageIsOver: who has read that a server goes on without the other
// one reads, at the same level, that it waits for it again.
func TestPairLogSaysThatAnOutageIsOver(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	var lines logLines
	po.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(ctx))
	f := dialFollower(t, s)
	s.inSyncWith(f)
	_, err := c.SetSync(ctx, "/a", []byte("1")) // the follower acknowledges nothing
	must(t, err)
	eventually(t, "the beginning is logged", func() bool { return lines.has("publishing updates without the other server") })
	if lines.has("has them again") {
		t.Error("the end is logged too early")
	}
	f.have(s.newest())
	eventually(t, "the end is logged", func() bool { return lines.has("has them again") })
}

// TestPairTwoFollowers: a second server that follows is reported.
func TestPairTwoFollowers(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	var lines logLines
	po.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(testContext(t)))
	s.inSyncWith(dialFollower(t, s))
	if lines.has("more than two") {
		t.Error("one follower is too many")
	}
	s.inSyncWith(dialFollower(t, s))
	eventually(t, "it is reported", func() bool { return lines.has("more than two") })
}
