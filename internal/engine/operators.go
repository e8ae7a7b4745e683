package engine

import (
	"container/list"
	"time"

	"clustermap/internal/link"
)

// beyond are the places for operators: connections that a socket accepts although it
// has no room, because somebody must be able to look, and to act, while other peers
// occupy everything. Peers on this machine are operators, and Config.Operator decides
// about the others when they have completed their handshake: a key proves nothing
// before. Until then the connection is on trial.
//
// The places do not run out. A newcomer on trial replaces a silent one, as everywhere;
// one from this machine replaces any. An operator replaces the one who has been there
// longest, if that is longer than a turn. admission.mu guards the fields.
type beyond struct {
	operator func(*Peer) bool // Config.Operator; nil if there are no such places
	keys     bool             // a peer of another machine can prove its key

	trials, operators list.List // of *conn, in order of arrival
}

const (
	OperatorPlaces = 4           // of each socket, and as many on trial
	operatorTurn   = time.Second // enough for a command
)

func (b *beyond) set(o *Config) {
	b.operator, b.keys = o.Operator, o.Security.CurveServer
}

// try puts a new connection on trial, and reports whether that was possible.
func (a *admission) try(c *conn) bool {
	local := link.Local(c.stream.Conn)
	_, upper := reserveBegins()
	if a.operator == nil || !local && !a.keys || c.descriptor >= upper {
		return false
	}
	if a.trials.Len() >= OperatorPlaces {
		if !local {
			return false
		}
		a.replace(&a.trials)
	}
	c.extra = a.trials.PushBack(c)
	return true
}

// replace ends the first connection of a list.
func (a *admission) replace(l *list.List) {
	c := l.Front().Value.(*conn)
	c.close(ErrTooManyConnections)
	a.forget(c)
}

// seat decides about a connection on trial, which has completed its handshake. It
// returns an error if the peer is no operator and there is still no room.
func (a *admission) seat(c *conn, peer *Peer) error {
	a.mu.Lock()
	operator := a.operator
	trial := c.extra != nil
	a.mu.Unlock()
	if !trial {
		return nil
	}
	is := link.Local(c.stream.Conn) || operator != nil && operator(peer)
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.extra == nil {
		return ErrTooManyConnections // replaced meanwhile
	}
	full := a.full(c)
	if full == nil {
		a.release(c)
		a.connections++
		return nil
	}
	if is && a.operators.Len() >= OperatorPlaces {
		if first := a.operators.Front().Value.(*conn); time.Since(first.since) < a.tuning.OperatorTurn {
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
	c.extra = a.operators.PushBack(c)
	return nil
}

// release removes a connection from its place beyond the limits, and reports whether it
// had one.
func (b *beyond) release(c *conn) bool {
	if c.extra == nil {
		return false
	}
	b.trials.Remove(c.extra) // each list ignores the elements of the other one
	b.operators.Remove(c.extra)
	c.extra = nil
	return true
}
