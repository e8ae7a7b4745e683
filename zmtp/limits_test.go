package zmtp

import (
	"math"
	"testing"
)

func TestLimitsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   Limits
		want bounds
	}{
		{Limits{}, bounds{256 << 20, 65536, 64 << 10}},
		{Limits{-1, -1, -1}, bounds{math.MaxInt, math.MaxInt, math.MaxInt}},
		{Limits{1, 2, 3}, bounds{1, 2, 3}},
		{Limits{MaxMessage: math.MaxInt64}, bounds{math.MaxInt, 65536, 64 << 10}},
	} {
		if got := c.in.bounds(); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.in, got, c.want)
		}
	}
}
