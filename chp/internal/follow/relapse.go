package follow

import (
	"errors"
	"time"

	"clustermap/internal/backoff"
)

// relapses counts sessions that ended soon after they became ACTIVE, although many
// bytes had arrived. Such a client costs its server a snapshot each time: most likely
// it cannot keep up with the updates, was disconnected for that, and will be again. If
// all slow replicas came back at once, the server would do nothing else. So each one
// waits longer each time before it joins again.
//
// A map that is too large for the client costs the same, each time.
//
// A session in which little arrived ended for another reason, such as a restart of the
// server, and so did one whose server says STANDBY then. The client comes back as soon as it can.
type relapses struct{ n int }

// ended counts the end of a session and returns the wait before the next one. active is
// how long the session was ACTIVE, 0 if it never was; arrived is the number of bytes of
// updates that arrived; err is why it ended. The first relapse causes no wait, because the server may have
// been restarted. Part of the wait is random, so that replicas that were disconnected
// together do not come back together.
func (r *relapses) ended(active time.Duration, arrived int64, err error) time.Duration {
	switch {
	case errors.Is(err, ErrMapTooLarge):
		r.n = max(r.n+1, relapseLarge)
	case active >= relapseSoon, errors.Is(err, ErrStandby): // the one before ended because its server handed over
		r.n = 0
	case active > 0 && arrived >= relapseBytes:
		r.n++
	default:
		return 0
	}
	if r.n < 2 {
		return 0
	}
	return backoff.Wait(relapseFirst, relapseMost, r.n-2)
}
