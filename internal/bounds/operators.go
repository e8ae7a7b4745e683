package bounds

import (
	"time"

	"clustermap/internal/list"
)

// beyond are the places for operators: connections that a socket accepts although it
// has no room, because somebody must be able to look, and to act, while other peers
// occupy everything. Peers on this machine are operators, and the program decides
// about the others when they have completed their handshake: a key proves nothing
// before. Until then the connection is on trial.
//
// The places do not run out. A newcomer on trial replaces a silent one, as everywhere;
// one from this machine replaces any. An operator replaces the one who has been there
// longest, if that is longer than a turn. Admission.mu guards the fields.
type beyond struct {
	open bool // there are such places
	keys bool // a peer of another machine can prove its key

	trials, operators list.List[Guest] // in order of arrival
}

// try puts a new connection on trial, and reports whether that was possible.
func (a *Admission) try(c *Guest) bool {
	local := c.Conn.Local()
	_, upper := reserveBegins()
	if !a.open || !local && !a.keys || c.Descriptor >= upper {
		return false
	}
	if a.trials.Len() >= OperatorPlaces {
		if !local {
			return false
		}
		a.replace(&a.trials)
	}
	c.extra.Of = c
	a.trials.PushBack(&c.extra)
	return true
}

// replace ends the first connection of a list.
func (a *Admission) replace(l *list.List[Guest]) {
	c := l.Front()
	c.Conn.Close(ErrTooManyConnections)
	a.forget(c)
}

// Seat decides about a connection on trial, which has completed its handshake. It
// returns an error if the peer is no operator and there is still no room.
func (a *Admission) Seat(c *Guest, operator func() bool) error {
	a.mu.Lock()
	trial := c.extra.In(&a.trials)
	a.mu.Unlock()
	if !trial {
		return nil
	}
	is := c.Conn.Local() || operator()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.extra.In(&a.trials) {
		return ErrTooManyConnections // replaced meanwhile
	}
	full := a.full(c)
	if full == nil {
		a.release(c)
		a.connections++
		return nil
	}
	if is && a.operators.Len() >= OperatorPlaces {
		if first := a.operators.Front(); time.Since(first.since) < a.tuning.OperatorTurn {
			is = false
		} else {
			a.replace(&a.operators)
		}
	}
	if !is {
		return full
	}
	a.release(c)
	c.since = time.Now()
	a.operators.PushBack(&c.extra)
	return nil
}

// release removes a connection from its place beyond the limits, and reports whether it
// had one.
func (b *beyond) release(c *Guest) bool {
	had := c.extra.In(&b.trials) || c.extra.In(&b.operators)
	c.extra.Remove()
	return had
}
