package chp

import (
	"context"
	"errors"
	"testing"

	"clustermap/patterns/binarystar"
)

// TestPairHandoverToDeaf: a handover to a follower that stands still ends soon, and the
// updates that waited for it are taken.
func TestPairHandoverToDeaf(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, c := activePrimary(t)
	f := dialFollower(t, s)
	s.inSyncWith(f)
	one, two := make(chan error, 1), make(chan error, 1)
	set := func(key string, done chan error) {
		_, err := c.SetSync(ctx, key, []byte("1"))
		done <- err
	}
	go set("/one", one)
	eventually(t, "the update is held", func() bool { return s.holds(forEver) })
	ended := make(chan error, 1)
	limited, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	go func() { ended <- s.pair.handover(limited) }()
	eventually(t, "the handover has begun", func() bool {
		s.sequencer.mu.Lock()
		defer s.sequencer.mu.Unlock()
		return s.sequencer.halted
	})
	go set("/two", two)
	if err := <-ended; !errors.Is(err, binarystar.ErrNoSuccessor) || !s.active() {
		t.Errorf("handover: %v, still active: %v", err, s.active())
	}
	s.holds(0)
	must(t, <-one)
	must(t, <-two)
}
