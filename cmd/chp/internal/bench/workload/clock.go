package workload

import "time"

// start ties the process's own clock to the one all processes share.
var start, startTime = now(), time.Now()

// Now returns nanoseconds on a clock that all processes of the machine share and
// that is never set back, where there is one. It costs as much as time.Now: the
// shared clock is asked once, for Go's own advances at the same pace.
func Now() int64 { return start + int64(time.Since(startTime)) }
