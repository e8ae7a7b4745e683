package engine

import (
	"testing"
	"time"
)

func TestBackOff(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		ivl, most time.Duration
		want      []time.Duration
	}{
		{100 * ms, 1000 * ms, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms}},
		{100 * ms, 100 * ms, []time.Duration{100 * ms, 100 * ms}},
		{1, 1<<63 - 1, []time.Duration{1, 2, 4}},
	} {
		s := new(Socket)
		s.settings.store(&Config{ReconnectInterval: c.ivl, ReconnectIntervalMax: c.most})
		for attempt, want := range c.want {
			if got := s.backOff(attempt); got != want {
				t.Errorf("attempt %d of %v to %v: %v, want %v", attempt, c.ivl, c.most, got, want)
			}
		}
		for attempt := range 1000 {
			if got := s.backOff(attempt); got < c.ivl || got > c.most {
				t.Fatalf("attempt %d of %v to %v: %v", attempt, c.ivl, c.most, got)
			}
		}
	}
	s := new(Socket)
	s.settings.store(&Config{ReconnectInterval: 100 * ms})
	for attempt := range 1000 {
		if got := s.backOff(attempt); got < 100*ms || got >= 200*ms {
			t.Fatalf("attempt %d: %v", attempt, got)
		}
	}
}
