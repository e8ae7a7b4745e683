package pace

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-time.Hour, 0, tick, 2 * tick, 2 * napMost} {
		begin := time.Now()
		if err := Sleep(t.Context(), begin.Add(d)); err != nil {
			t.Errorf("%v: %v", d, err)
		}
		if slept := time.Since(begin); slept < max(d, tick) {
			t.Errorf("%v: slept %v", d, slept)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, d := range []time.Duration{0, time.Hour} {
		if err := Sleep(ctx, time.Now().Add(d)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: %v after the end of ctx", d, err)
		}
	}
}
