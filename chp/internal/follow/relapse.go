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
// server, and so did one whose server says STANDBY next: it has handed over. The client comes
// back as soon as it can. STANDBY of another server says nothing: a slow client hears it as well.
type relapses struct {
	n    int
	last string // the server of the session before, if that counted; else empty
}

// ended counts the end of a session and returns the wait before the next one. server is the
// name of its server; active is how long the session was ACTIVE, 0 if it never was; arrived is
// the number of bytes of updates that arrived; err is why it ended. The first relapse causes no
// wait, because the server may have been restarted. Part of the wait is random, so that replicas
// that were disconnected together do not come back together.
func (r *relapses) ended(server string, active time.Duration, arrived int64, err error) time.Duration {
	last := r.last
	r.last = ""
	switch {
	case errors.Is(err, ErrMapTooLarge):
		r.n = max(r.n+1, relapseLarge)
	case active >= relapseSoon:
		r.n = 0
	case errors.Is(err, errStandby):
		if active == 0 && server == last {
			r.n--
		}
		return 0
	case active > 0 && arrived >= relapseBytes:
		r.n++
		r.last = server
	default:
		return 0
	}
	if r.n < 2 {
		return 0
	}
	return backoff.Wait(relapseFirst, relapseMost, r.n-2)
}
