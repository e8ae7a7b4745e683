package chp

import (
	"sync/atomic"
	"time"

	"clustermap/internal/timer"
)

// lull tells an update that comes alone from those of a stream. To wake a goroutine for
// it takes longer than the work; in a stream, goroutines that are awake handle many
// updates at a time.
type lull struct{ last atomic.Int64 }

// lullTime is the shortest time between two updates, or two batches, that is a lull.
// More updates often follow the first one at once, and each that goes alone costs the
// other end more time.
const lullTime = 200 * time.Microsecond

// over reports whether the last call was so long ago.
func (l *lull) over() bool {
	now := int64(timer.Now())
	return now-l.last.Swap(now) >= int64(lullTime)
}
