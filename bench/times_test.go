package bench

import (
	"math"
	"slices"
	"testing"
	"time"
)

// limit is the longest wait for anything that should come.
const limit = 2 * time.Minute

// times are measured times.
type times []time.Duration

// at returns the time that a share p of the times, 0 to 1, do not exceed. The times must
// be sorted.
func (t times) at(p float64) time.Duration {
	return t[max(int(math.Ceil(p*float64(len(t))))-1, 0)]
}

// report reports the distribution of a few long times in milliseconds, and logs all of
// them.
func (t times) report(b *testing.B, name string) {
	slices.Sort(t)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(t[0]), name+"min-ms")
	b.ReportMetric(ms(t.at(0.5)), name+"p50-ms")
	b.ReportMetric(ms(t.at(0.9)), name+"p90-ms")
	b.ReportMetric(ms(t[len(t)-1]), name+"max-ms")
	b.Logf("%stimes, sorted: %v", name, []time.Duration(t))
}

// percentiles reports the distribution of many short times in nanoseconds, which
// benchstat prints in the unit that fits.
func (t times) percentiles(b *testing.B) {
	slices.Sort(t)
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}} {
		b.ReportMetric(float64(t.at(p.share)), p.name+"-ns")
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	all := make(times, 1000)
	for i := range all {
		all[i] = time.Duration(i + 1)
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.001: 1, 0.5: 500, 0.9: 900, 0.999: 999, 1: 1000} {
		if got := all.at(share); got != want {
			t.Errorf("%g: %d, want %d", share, got, want)
		}
	}
	if got := (times{7}).at(0.5); got != 7 {
		t.Errorf("of one: %d", got)
	}
}
