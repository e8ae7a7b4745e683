package chp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pairjournal "clustermap/chp/internal/journal/pair"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/sockets"
)

// bigPrimary returns an active primary with a map of 16 MiB, and a client.
func bigPrimary(t testing.TB, change func(*ServerOptions)) (pairServer, *Client) {
	t.Helper()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	if change != nil {
		change(&po)
	}
	s := startAlone(t, po)
	c := pairClient(t, po, bo)
	value := make([]byte, 256<<10)
	for i := range 64 {
		must(t, c.Set(ctx, fmt.Sprintf("/big/%d", i), value))
	}
	_, err := c.SetSync(ctx, "/small", []byte("1"))
	must(t, err)
	return s, c
}

// lazyFollower asks for the whole map, and reads next to nothing until Recv is called.
func lazyFollower(t testing.TB, s pairServer) *wireFollower {
	t.Helper()
	f := dialFollower(t, s, func(o *sockets.Options) { o.RecvHWM, o.RecvHWMBytes = 1, 1 })
	asks := followRequest{}
	f.say(nameFollow, asks.append(nil))
	eventually(t, "it is sent the map", func() bool {
		sending := false
		s.sequencer.Between(func(*order.Moment) {
			f := s.pair.Journal().Follower()
			sending = f != nil && f.Sent > 0
		})
		return sending
	})
	return f
}

// TestPairBaseUnderWrites: a follower that is sent the whole map gets the updates made
// meanwhile behind it, though that is more than the tail keeps otherwise, and is not sent
// the map again.
func TestPairBaseUnderWrites(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := bigPrimary(t, nil)
	q := &s.sequencer
	q.Between(func(*order.Moment) { s.pair.Journal().Bound(256 << 10) })
	f := lazyFollower(t, s)
	for i := range 64 {
		_, err := c.SetSync(ctx, fmt.Sprintf("/more/%d", i), make([]byte, 64<<10))
		must(t, err)
	}
	if full := s.fullest(); full < 0.2 || full > 1 {
		t.Errorf("what the follower lacks counts as %.2f of the tail", full)
	}
	bases, last := 0, int64(0)
	for last < s.newest() {
		m, err := f.Recv(ctx)
		must(t, err)
		if len(m) != 2 {
			continue
		}
		switch string(m[0]) {
		case nameBase:
			reigns, ok := state.ParseReigns(m[1][8+ledger.MapIDSize:])
			if bases++; !ok || bases > 1 {
				t.Fatalf("the map is sent %d times", bases)
			}
			last = reigns[len(reigns)-1].Last
		case nameBatch:
			h, ok := state.ParseHead(m[1])
			if !ok || h.First != last+1 {
				t.Fatalf("batch from %d on after %d", h.First, last)
			}
			last = h.Last()
		}
	}
	f.have(last)
	eventually(t, "updates wait for it", s.inSync2)
	done := make(chan error, 1)
	go func() {
		_, err := c.SetSync(ctx, "/last", make([]byte, 64<<10))
		done <- err
	}()
	for m, err := f.Recv(ctx); ; m, err = f.Recv(ctx) {
		must(t, err)
		if h, ok := state.ParseHead(m[1]); len(m) == 2 && ok {
			f.have(h.Last())
			break
		}
	}
	must(t, <-done)
	q.Between(func(*order.Moment) {
		if bytes, most := s.pair.Journal().Kept(); most > 256<<10 || bytes > most {
			t.Errorf("the tail keeps %d bytes, up to %d, for a follower that has everything", bytes, most)
		}
	})
}

// TestPairFollowerStandsStill: a follower that reads nothing of the map is given up, and
// with it the cut of the map.
func TestPairFollowerStandsStill(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := bigPrimary(t, func(o *ServerOptions) { o.SnapshotTimeout = 200 * time.Millisecond })
	lazyFollower(t, s)
	eventually(t, "it is given up", func() bool {
		lost := false
		s.sequencer.Between(func(*order.Moment) { lost = s.pair.Journal().Follower().Progress == pairjournal.ProgressLost })
		return lost
	})
	_, err := c.SetSync(ctx, "/after", []byte("1"))
	must(t, err)
}

// TestPairBackupBoundsTheMapThatItCopies: a backup does not copy a map that is larger than
// its limit, and its log says so.
func TestPairBackupBoundsTheMapThatItCopies(t *testing.T) {
	t.Parallel()
	var o ServerOptions
	s, _ := bigPrimary(t, func(po *ServerOptions) {
		_, o = pairOptions(t)
		o.Host, o.Port = po.Host, 5566
		pair := *po.Pair
		pair.Backup, pair.Peer, pair.State, pair.PeerState = true, strings.Replace(po.Pair.Peer, ":5566", ":5556", 1), po.Pair.PeerState, po.Pair.State
		o.Pair = &pair
	})
	var log lockedLog
	o.Logger, o.MaxMapBytes = log.logger(), 1<<20
	b := startPairServer(t, o)
	eventually(t, "the refusal is logged", func() bool { return strings.Contains(log.String(), "exceeds this server's MaxMapBytes") })
	if n := b.Len(); n > 0 {
		t.Errorf("it has %d keys of the larger map", n)
	}
	b.stop()
	o.MaxMapBytes = 20 << 20
	b = startPairServer(t, o)
	eventually(t, "a map below the limit is copied", func() bool { return b.Len() == s.Len() })
}
