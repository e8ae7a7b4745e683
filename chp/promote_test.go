package chp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/sockets"
)

// lonelyBackup starts a backup with ten keys on its disk whose primary is gone.
func lonelyBackup(t testing.TB, change ...func(*ServerOptions)) (s pairServer, primary, backup ServerOptions) {
	t.Helper()
	primary, backup = pairOptions(t)
	dir := t.TempDir()
	fillLog(t, dir, 10)
	backup.Log = openLog(t, dir)
	for _, c := range change {
		c(&backup)
	}
	return startAlone(t, backup), primary, backup
}

// refusedPromotion returns the reason why a server is not promoted.
func refusedPromotion(t testing.TB, server string) string {
	t.Helper()
	err := Promote(testContext(t), server, sockets.Security{})
	refusal := (*PromoteError)(nil)
	if !errors.As(err, &refusal) {
		t.Fatalf("the server does not refuse: %v", err)
	}
	return refusal.Reason
}

// promoted promotes a server, as soon as the other one has been silent for long enough.
func promoted(t testing.TB, endpoint string) {
	t.Helper()
	for {
		err := Promote(testContext(t), endpoint, sockets.Security{})
		if err == nil {
			return
		}
		if refusal := (*PromoteError)(nil); !errors.As(err, &refusal) || refusal.Reason != "the other server of the pair is heard: it is not gone" {
			t.Fatal(err)
		}
	}
}

// A backup that was restarted while its primary is gone says so in its log, waits, and
// serves its map when it is promoted. The log names who asked. A new primary copies the map.
func TestPromote(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var told lockedLog
	backup, po, bo := lonelyBackup(t, func(o *ServerOptions) {
		o.Logger = told.logger()
		o.Pair.Timeout = 200 * time.Millisecond
	})
	eventually(t, "it logs that it waits", func() bool {
		text := told.String()
		return strings.Contains(text, "level=WARN") && strings.Contains(text, "waits for the primary") && strings.Contains(text, "chp promote")
	})
	if backup.active() {
		t.Fatal("the backup serves by itself")
	}
	promoted(t, po.Pair.Peer)
	if st := backup.Status(); st.State != ServerActive || st.Keys != 10 {
		t.Errorf("%+v", st)
	}
	c := pairClient(t, po, bo)
	_, err := c.SetSync(ctx, "/after", []byte("1"))
	must(t, err)
	if c.Len() != 11 {
		t.Errorf("a client has %d keys", c.Len())
	}
	if got := refusedPromotion(t, po.Pair.Peer); got != "the server is active" {
		t.Errorf("a second time: %q", got)
	}
	must(t, c.Close())
	primary := startPairServer(t, po) // a new one, with nothing
	eventually(t, "a new primary copies the map", func() bool { return primary.Len() == 11 })
	if primary.active() || !backup.active() {
		t.Error("the new primary takes the map away")
	}
	primary.stop()
	backup.stop()
	for _, want := range []string{`"was promoted at the request of a client: it serves without the other server" by.remote=127.`, `"is not promoted" by.remote=127.`} {
		if text := told.String(); !strings.Contains(text, want) {
			t.Errorf("the log has no %s:\n%s", want, text)
		}
	}
}

// TestLogNamesPeerByItsFirstPort: what the log calls the peer is what --peer names, and not
// the endpoint where the other server tells its state, which has a name of its own.
func TestLogNamesPeerByItsFirstPort(t *testing.T) {
	t.Parallel()
	var told lockedLog
	_, _, bo := lonelyBackup(t, func(o *ServerOptions) {
		o.Logger = told.logger()
		o.Pair.Timeout = 200 * time.Millisecond
	})
	eventually(t, "it logs for whom it waits", func() bool {
		return strings.Contains(told.String(), " peer="+bo.Pair.Peer+" peer_state="+bo.Pair.PeerState+" ")
	})
}

// A server is promoted only if it is of a pair, not active, complete, asked by an
// administrator, and if the other one is not heard and had time to be.
func TestPromoteRefused(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		if got := refusedPromotion(t, startServer(t, ServerOptions{}).Endpoints().Snapshot); got != errNotOfPair.Error() {
			t.Errorf("%q", got)
		}
	})
	t.Run("client elsewhere", func(t *testing.T) {
		t.Parallel()
		_, bo := pairOptions(t)
		s, err := NewServer(bo)
		must(t, err)
		s.admins.local = func(string) bool { return false }
		servePair(t, s)
		if got := refusedPromotion(t, s.Endpoints().Snapshot); got != errNotLocal.Error() {
			t.Errorf("%q", got)
		}
	})
	t.Run("just started", func(t *testing.T) {
		t.Parallel()
		_, bo := pairOptions(t)
		bo.Pair.Timeout = time.Hour
		s, err := NewServer(bo)
		must(t, err)
		s.pair.Began = s.pair.Began.Add(-2 * time.Hour)
		servePair(t, s)
		got := refusedPromotion(t, s.Endpoints().Snapshot)
		rest, ok := strings.CutPrefix(got, "the server has just started, and gives the other one ")
		rest, after, _ := strings.Cut(rest, " ")
		if left, err := time.ParseDuration(rest); !ok || after != "more to be heard" || err != nil || left > time.Hour {
			t.Errorf("%q does not say what is left of three hours after two", got)
		}
	})
	t.Run("the primary serves", func(t *testing.T) {
		t.Parallel()
		po, bo := pairOptions(t)
		primary, backup := startPairServer(t, po), startPairServer(t, bo)
		eventually(t, "the backup follows", primary.inSync)
		if got := refusedPromotion(t, bo.Pair.Peer); got != "the server is active" {
			t.Errorf("the active one: %q", got)
		}
		if got := refusedPromotion(t, po.Pair.Peer); got != "the other server of the pair is heard: it is not gone" {
			t.Errorf("the passive one: %q", got)
		}
		if backup.active() || !primary.active() {
			t.Error("the roles have changed")
		}
	})
	t.Run("without a copy", func(t *testing.T) {
		t.Parallel()
		po, bo := pairOptions(t)
		bo.Pair.Peer = bo.Pair.PeerState // where no server sends anything
		primary, backup := startPairServer(t, po), startPairServer(t, bo)
		eventually(t, "the backup is passive", func() bool { return backup.Status().State == ServerPassive })
		primary.crash()
		eventually(t, "the primary is silent", func() bool { return !backup.pair.Node().Peer().Alive })
		if got := refusedPromotion(t, po.Pair.Peer); got != "the server has not copied the active server's map completely; restarted, it has the map that it had before" {
			t.Errorf("%q", got)
		}
	})
}

// TestPromotedServerTakesOver: a server that was promoted begins a term as one that took over.
func TestPromotedServerTakesOver(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dir := t.TempDir()
	bo.Log = openLog(t, dir)
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	c := pairClient(t, po, bo)
	for _, key := range []string{"/first", "/both"} { // the second one when the backup has the map
		eventually(t, "the backup follows", primary.inSync)
		_, err := c.SetSync(ctx, key, []byte("1"))
		must(t, err)
	}
	primary.crash()
	backup.crash()
	bo.Log = openLog(t, dir)
	backup = startAlone(t, bo)
	promoted(t, po.Pair.Peer)
	_, err := c.SetSync(ctx, "/after", []byte("1"))
	must(t, err)
	accepted, _ := backup.sequencer.Standing()
	if id := accepted.ID; id&state.ReignTook == 0 {
		t.Errorf("its reign is %x", id)
	}
}

// A server that was promoted with an old map, and has accepted nothing since, gives way to
// the other one when that comes back with what clients were acknowledged.
func TestPromotedYieldsToNewerMap(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	po.Log, bo.Log = openLog(t, dirs[0]), openLog(t, dirs[1])
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	c := pairClient(t, po, bo)
	_, err := c.SetSync(ctx, "/both", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	backup.crash()
	_, err = c.SetSync(ctx, "/alone", []byte("1"))
	must(t, err)
	must(t, c.Close())
	primary.crash()

	bo.Log = openLog(t, dirs[1])
	backup = startAlone(t, bo)
	promoted(t, po.Pair.Peer)
	po.Log = openLog(t, dirs[0])
	primary = startPairServer(t, po)
	eventually(t, "the primary is active", func() bool { return primary.active() && !backup.active() })
	eventually(t, "the backup has its map", func() bool { return backup.Len() == 2 && primary.Len() == 2 })
}
