package workload

import "time"

// start ties the process's own clock to the one all processes share.
var start, startTime = tie(now, time.Now)

// Now returns nanoseconds on a clock that all processes of the machine share and
// that is never set back, where there is one. It costs as much as time.Now: the
// shared clock is asked once, for Go's own advances at the same pace.
func Now() int64 { return start + int64(time.Since(startTime)) }

const (
	tieTries = 100
	tieGap   = 2 * time.Microsecond
)

// tie reads both clocks at the same moment, as nearly as it can: a process that
// does not run for some milliseconds between one reading and the other would have
// a clock that is as much too late for ever.
func tie(shared func() int64, own func() time.Time) (at int64, atOwn time.Time) {
	best := time.Duration(-1)
	for range tieTries {
		before := own()
		s := shared()
		gap := own().Sub(before)
		if best < 0 || gap < best {
			best, at, atOwn = gap, s, before.Add(gap/2)
		}
		if best <= tieGap {
			break
		}
	}
	return at, atOwn
}
