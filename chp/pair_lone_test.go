package chp

import (
	"testing"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
)

// TestServerAloneBeginsAReign: what clients are acknowledged by a server of a pair that runs
// without the other one for a while, as an ordinary server, counts when it is of a pair
// again: it goes on neither with an interim nor with a reign that the other one may have
// gone on with.
func TestServerAloneBeginsAReign(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	po, bo := pairOptions(t)
	accepted := func(s *Server) state.Reign {
		last, _ := s.sequencer.Standing()
		return last
	}
	po.Log = openLog(t, dir)
	primary := startAlone(t, po)
	c := pairClient(t, po, bo)
	_, err := c.SetSync(ctx, "/kept", []byte("1"))
	must(t, err)
	_, err = c.SetSync(ctx, "/lease", []byte("1"), WithTTL(time.Hour))
	must(t, err)
	must(t, c.Close())
	before := accepted(primary.Server)
	primary.crash()

	po.Log = openLog(t, dir)
	primary = startAlone(t, po)
	c = pairClient(t, po, bo)
	eventually(t, "it is active", primary.active)
	for later := time.Now().Add(2 * time.Hour); primary.Len() > 1; { // after the grace
		primary.sequencer.Expire(later)
		later = later.Add(time.Hour)
	}
	must(t, c.Close())
	primary.crash()

	s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	if got := accepted(s); got != before {
		t.Errorf("an interim counts: %x after %x", got, before)
	}
	c = startClient(t, s, ClientOptions{})
	_, err = c.SetSync(ctx, "/alone", []byte("1"))
	must(t, err)
	must(t, c.Close())
	if got := accepted(s); state.Compare(got, before) <= 0 || got.ID == before.ID {
		t.Errorf("%x after %x", got, before)
	}
	stop()
}

// TestFirstSequenceOfAnyClock: however wrong the clock of a server is, the other one accepts
// its sequences, and there is room for more updates than it ever gets.
func TestFirstSequenceOfAnyClock(t *testing.T) {
	t.Parallel()
	before := int64(0)
	for _, year := range []int{1, 1900, 1970, 2026, 2108, 2126, 2200, 9999} {
		first := order.FirstSequence(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		if first < before {
			t.Errorf("%d: %d after %d", year, first, before)
		}
		before = first
		for _, sequence := range []int64{first + 1, first + 1<<49} {
			h := state.Head{Reign: 1 << state.ReignBits, First: sequence, Count: 1}
			if _, ok := state.ParseHead(h.Append(nil)); !ok {
				t.Errorf("%d: %d is refused", year, sequence)
			}
		}
	}
}
