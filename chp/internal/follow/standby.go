package follow

import (
	"math/rand/v2"
	"time"
)

// standby paces a client whose servers answer that they are not active. One of them
// will be soon: the passive server of a pair takes over when its peer has been silent
// long enough and clients ask. So the client goes round its servers with short pauses,
// and such an answer does not count as a failure.
//
// A pause follows each round of the servers. It is short at first, so that a pair with
// a short time-out fails over quickly; then it is a quarter of the time that has
// passed, up to standbyMost. Part of it is random, so that clients that lost a server
// together do not come back together.
type standby struct {
	since time.Time // of the first such answer since the client was ACTIVE, or zero
	seen  bool      // such an answer arrived in this round
	tried int       // servers tried in this round
}

// reset must be called after the client was ACTIVE.
func (p *standby) reset() { *p = standby{} }

// ask counts servers that were tried. answered reports whether the last one was not
// active.
func (p *standby) ask(servers int, answered bool) {
	p.tried += servers
	if answered {
		p.seen = true
		if p.since.IsZero() {
			p.since = time.Now()
		}
	}
}

// pause returns the wait before the next attempt, given the number of servers. ok is
// false if no server of this round has answered that it is not active: then another
// rule decides the wait.
func (p *standby) pause(servers int) (wait time.Duration, ok bool) {
	ok = p.seen
	if p.tried < servers {
		return 0, ok
	}
	p.tried, p.seen = 0, false
	wait = min(max(time.Since(p.since)/4, standbyFirst), standbyMost)
	return wait/2 + rand.N(wait/2), ok
}
