package chp

import (
	"errors"
	"testing"
	"time"

	"clustermap/sockets"
)

// TestPairListenBindsAllOrNone: if the state endpoint is taken, the three ports are free
// again, and Listen can be called once more.
func TestPairListenBindsAllOrNone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o, _ := pairOptions(t)
	taken, err := sockets.NewRouter(sockets.Options{})
	must(t, err)
	must(t, taken.Bind(ctx, o.Pair.State))
	s, err := NewServer(o)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	var refused *ListenError
	if err := s.Listen(ctx); !errors.As(err, &refused) || refused.Endpoint != o.Pair.State {
		t.Fatalf("Listen: %v", err)
	}
	must(t, taken.Close())
	must(t, s.Listen(ctx))
}

// TestPairTimeoutOfTwoIntervals: one state message that comes late is no silence.
func TestPairTimeoutOfTwoIntervals(t *testing.T) {
	t.Parallel()
	o, _ := pairOptions(t)
	o.Pair.Interval = time.Second
	o.Pair.Timeout = 2*o.Pair.Interval - 1
	var refused *OptionError
	if _, err := NewServer(o); !errors.As(err, &refused) || refused.Field != "Pair.Timeout" {
		t.Errorf("less: %v", err)
	}
	o.Pair.Timeout++
	s, err := NewServer(o)
	must(t, err)
	must(t, s.Close())
}
