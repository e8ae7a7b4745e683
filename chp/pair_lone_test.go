package chp

import (
	"testing"
	"time"

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
		s.sequencer.mu.Lock()
		defer s.sequencer.mu.Unlock()
		return s.sequencer.order.reigns.Accepted()
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
		primary.sequencer.expire(later)
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
