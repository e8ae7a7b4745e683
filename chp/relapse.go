package chp

import (
	"math/rand/v2"
	"time"
)

// relapses counts sessions that ended soon after they had become ACTIVE, although
// much had arrived. Such a client costs its server a snapshot each time: most likely
// it does not keep up with the updates, was disconnected for that, and will be again.
// If all slow replicas came back at once, the server would do nothing else. So each
// joins later than the time before.
//
// A session in which little arrived ended for another reason: the server was
// restarted, or the network broke. However often that happens, the client comes back
// as soon as it can.
type relapses struct{ n int }

const (
	relapseSoon  = 30 * time.Second // a session that ends sooner can be a relapse
	relapseFirst = 250 * time.Millisecond
	relapseMost  = 30 * time.Second

	// relapseBytes is the least that arrives at a client that cannot keep up: less
	// fits in the buffers of the operating systems.
	relapseBytes = 4 << 20
)

// ended notes the end of a session. active is how long it was ACTIVE, 0 if it never
// was; arrived counts the bytes of updates that arrived. It returns how long to
// wait before the next one joins. The first relapse is free: a server may have been
// restarted. Part of the wait is random, so that replicas which were disconnected
// together do not come back together.
func (r *relapses) ended(active time.Duration, arrived int64) time.Duration {
	switch {
	case active >= relapseSoon:
		r.n = 0
	case active > 0 && arrived >= relapseBytes:
		r.n++
	default:
		return 0
	}
	if r.n < 2 {
		return 0
	}
	wait := relapseMost
	if shift := r.n - 2; shift < 7 {
		wait = min(wait, relapseFirst<<shift)
	}
	return wait/2 + rand.N(wait/2)
}
