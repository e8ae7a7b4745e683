package partner

import (
	"clustermap/internal/mutate"
)

// isolation tells an active server whether it may have been cut off from everybody.
// Then the other server may have taken over, and what this one publishes before it hears
// of that would be discarded. It is a machine without I/O and clock; time is counted in
// looks (LooksPerTimeout).
//
// The silence of the other server alone says nothing: it may have ended. But if nothing
// arrives from anybody, this server may be the isolated one. It then pings its clients,
// which may only be waiting, and holds updates until something arrives, however long that
// takes, and, since the network works again, for as long as the other server needs to
// answer on a new connection. After that it knows, until the other server is heard again:
// the other server does not run, or cannot be reached.
//
// A server that was not alone before does not go on alone without such an answer, either.
type isolation struct {
	state  isolationState
	quiet  int  // looks in which nothing arrived, up to quietLooks
	fresh  int  // looks for which an answer of the other server counts
	before bool // something arrived just before the other server was asked
	other  bool // something arrived since then
}

type isolationState uint8

const (
	// isolationNone: the other server is heard, or other peers are.
	isolationNone isolationState = iota
	// isolationSuspected: nothing arrives from anybody.
	isolationSuspected
	// isolationChecking: the other server is asked.
	isolationChecking
	// isolationExcluded: the other server did not answer, though the network works.
	isolationExcluded
)

// observation is what a server sees in a look.
type observation struct {
	heard   bool // the other server, within little more than the interval
	down    bool // the other server's machine says that it does not run
	arrived bool // anything from anybody, or updates of this process wait
	blocked bool // this server waits for its own disk, and reads nothing
}

// look counts a look, and reports whether to ask the other server: see answered.
func (i *isolation) look(s observation) (ask bool) {
	i.fresh = max(i.fresh-1, 0)
	switch {
	case i.state == isolationChecking: // ends with answered
		i.other = i.other || s.arrived
	case s.heard:
		i.state, i.quiet = isolationNone, 0
	case s.down:
		i.state = isolationExcluded
	case i.state == isolationExcluded:
	case s.arrived:
		suspected, again := i.state == isolationSuspected, i.before
		i.quiet = 0
		if suspected {
			// A client that never sends anything in time is heard a second time after a
			// question without an answer.
			ask, i.other = i.check(), again
		}
	case s.blocked: // it may or may not be cut off: the disk may be behind the same network
	case i.state == isolationNone:
		if i.quiet++; i.quiet == quietLooks {
			i.state, i.before = isolationSuspected, false
		}
	}
	return ask
}

// check begins to ask the other server, and returns false if it is asked already.
func (i *isolation) check() (ask bool) {
	ask = i.state != isolationChecking
	if ask {
		i.state, i.before, i.other = isolationChecking, i.quiet == 0, false
		i.quiet = 0
	}
	return ask
}

// answered ends a check: the other server was heard on a new connection, or its machine said
// that it does not run, or neither. The latter counts only if others were heard both before
// it was asked, so that it could have answered, and since then. It reports whether to ask
// once more.
func (i *isolation) answered(heard, down bool) (ask bool) {
	switch {
	case heard:
		i.state, i.fresh = isolationNone, LooksPerTimeout
	case down, i.before && i.other:
		i.state = isolationExcluded
	case i.other:
		i.state = isolationSuspected
		ask = i.check()
	default:
		i.state = isolationSuspected
	}
	return ask
}

// holds reports whether no updates may be accepted.
func (i *isolation) holds() bool {
	return (i.state == isolationSuspected || i.state == isolationChecking) && !mutate.AcceptCutOff
}

// knows reports whether the server may go on alone: the other one has answered just now,
// so it has not taken over, or did not answer. While nothing arrives from anybody it may
// not, however long that takes: who can get an acknowledgement answers a ping or is heard
// sooner or later, and the other server may have taken over.
func (i *isolation) knows() bool {
	return i.state == isolationExcluded || i.fresh > 0 || mutate.AcceptCutOff
}

// overdue says what to do when the other server has acknowledged nothing that waits for it
// for a number of looks: to go on alone, or to ask it first.
func (i *isolation) overdue(idle int) (alone, ask bool) {
	switch {
	case idle <= LooksPerTimeout:
	case i.knows():
		alone = true
	case i.state != isolationSuspected: // look asks when something arrives
		ask = i.check()
	}
	return alone, ask
}
