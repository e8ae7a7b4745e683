package chp

import (
	"errors"
	"testing"

	"clustermap/patterns/binarystar"
)

// TestPairHandoverToDeaf: a handover to a follower that does not read ends with the
// follower's timeout, and the updates that waited are published.
func TestPairHandoverToDeaf(t *testing.T) {
	t.Parallel()
	s, c := activePrimary(t)
	h := beginHandover(testContext(t), t, s, c, dialFollower(t, s))
	if err := <-h.ended; !errors.Is(err, binarystar.ErrNoSuccessor) || !s.active() {
		t.Errorf("handover: %v, still active: %v", err, s.active())
	}
	s.holds(0)
	must(t, <-h.before)
	must(t, <-h.after)
}
