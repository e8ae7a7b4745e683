package workload

import "time"

// start ties the process's own clock to the one all processes share.
var start, startTime = tie(now, time.Now)

// Now returns nanoseconds of a monotonic clock that all processes of the machine share,
// if the system has one. It costs as much as time.Now: it reads the shared clock only
// once, because Go's own clock advances at the same pace.
func Now() int64 { return start + int64(time.Since(startTime)) }

const (
	tieTries = 100
	tieGap   = 2 * time.Microsecond
)

// tie reads both clocks as nearly at the same moment as it can. A pause of some
// milliseconds between the two readings would shift the clock of this process for good.
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
