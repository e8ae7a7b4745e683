package chp

import (
	"bytes"
	"math/rand/v2"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// keyStandby is the one frame with which a server of a pair answers a request for a
// snapshot while it is not active: it has noted that the client asks, which counts
// when it has to find out whether its peer is still there, and the client is to try
// the other server. It may also come later, when the server is no longer active.
const keyStandby = "STANDBY"

// standbyWire is that message.
var standbyWire = zmtp.AppendMessage(nil, []byte(keyStandby))

// standsBy ends the session if a batch of the snapshot connection says that the
// server is not active. What else the batch contains is dropped then: a snapshot that
// is not complete counts for nothing, and one that is stays what it is.
func (s *session) standsBy(b *sockets.Batch) bool {
	wire := b.Wire()
	for _, span := range b.Spans() {
		if int(span.End-span.Start) == len(standbyWire) && bytes.Equal(wire[span.Start:span.End], standbyWire) &&
			b.Peer().Property(propertyCHP) != "" {
			s.fail(ErrStandby)
			b.SetSpans(nil)
			return true
		}
	}
	return false
}

// standby paces a client while a server answers that it is not active. Soon it will
// be, or another one: the passive server of a pair takes over when its peer has been
// silent for long enough and clients ask. So the client goes round its servers
// without long waits, however often that is, and such an answer is no failure.
//
// A round of the servers is followed by a pause: at first short, so that a pair
// with a short time-out fails over as quickly as it can, then a quarter of the time
// that has passed, up to standbyMost. Part of it is random, so that clients which
// lost a server together do not come together.
type standby struct {
	since time.Time // of the first such answer; zero if there was none since the client was ACTIVE
	seen  bool      // in this round
	tried int       // servers in this round
}

const (
	standbyFirst = 50 * time.Millisecond
	standbyMost  = 250 * time.Millisecond
)

// reset begins anew, after the client was ACTIVE.
func (p *standby) reset() { *p = standby{} }

// ask notes that servers were tried, the last of which said or did not say that it is
// not active.
func (p *standby) ask(servers int, answered bool) {
	p.tried += servers
	if answered {
		p.seen = true
		if p.since.IsZero() {
			p.since = time.Now()
		}
	}
}

// pause returns how long to wait before the next attempt, given how many servers there
// are. ok is false if none of this round is known to be a standby: then others decide.
func (p *standby) pause(servers int) (wait time.Duration, ok bool) {
	ok = p.seen
	if p.tried < servers {
		return 0, ok
	}
	p.tried, p.seen = 0, false
	wait = min(max(time.Since(p.since)/4, standbyFirst), standbyMost)
	return wait/2 + rand.N(wait/2), ok
}
