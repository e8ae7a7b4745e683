package follow

import (
	"context"
	"errors"
	"net"
	"testing"

	"clustermap/internal/closed"
)

func TestStateNames(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]string{
		StateInitial: "INITIAL", StateSyncing: "SYNCING", StateActive: "ACTIVE", 9: "State(9)",
	} {
		if got := state.String(); got != want {
			t.Errorf("state %d is %q, want %q", state, got, want)
		}
	}
}

func TestStatusWaitActive(t *testing.T) {
	t.Parallel()
	s := &New(Options{}).status
	waited := make(chan error)
	go func() { waited <- s.WaitActive(context.Background()) }()
	if !s.set(StateSyncing, "one") {
		t.Error("INITIAL to SYNCING is no change")
	}
	if s.set(StateSyncing, "one") {
		t.Error("the same state again is a change")
	}
	s.set(StateActive, "one")
	if err := <-waited; err != nil {
		t.Error(err)
	}
	s.set(StateInitial, "two")
	if !s.set(StateActive, "two") {
		t.Error("ACTIVE with another server is no change")
	}
	if state, server := s.State(); state != StateActive || server != "two" {
		t.Errorf("state is %v at %q", state, server)
	}
}

func TestStatusWaitEnds(t *testing.T) {
	t.Parallel()
	s := &New(Options{}).status
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.WaitActive(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("WaitActive with an ended context: %v", err)
	}
	go func() { ended <- s.WaitActive(context.Background()) }()
	s.Leave()
	s.Leave()
	if err := <-ended; !errors.Is(err, closed.CHP) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("WaitActive of a closed client: %v", err)
	}
	if s.set(StateActive, "late") {
		t.Error("a closed client changed its state")
	}
}
