package chp

import (
	"fmt"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/sockets"
)

// TestPairParkedBounds: a client cannot fill the room for requests that wait.
func TestPairParkedBounds(t *testing.T) {
	t.Parallel()
	p := &pair{}
	greedy, other := new(sockets.Peer), new(sockets.Peer)
	kept := 0
	for i := range 3 * maxParkedEach {
		if p.keep(request{greedy, wire.Want{Subtree: fmt.Sprintf("/%d/", i)}}) {
			kept++
		}
	}
	if !p.keep(request{other, wire.Want{}}) {
		t.Error("a request of another client is refused")
	}
	if kept != maxParkedEach || len(p.parked) != maxParkedEach+1 {
		t.Errorf("%d are kept, %d wait", kept, len(p.parked))
	}
	for range 2 * maxParked {
		p.keep(request{new(sockets.Peer), wire.Want{}})
	}
	if len(p.parked) != maxParked {
		t.Errorf("%d wait, at most %d may", len(p.parked), maxParked)
	}
}
