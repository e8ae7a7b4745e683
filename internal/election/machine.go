// Package election decides which of two servers of a pair is the active one: the rules
// of the Binary Star pattern, as a table of states and events, without I/O, clock or
// goroutines. Package patterns/binarystar runs them on two sockets.
package election

import (
	"time"

	"clustermap/internal/text"
)

// Role is the configured role of a node. It decides ties, and which node becomes active
// when both start.
type Role uint8

// The roles. A pair has one of each.
const (
	RolePrimary Role = 1
	RoleBackup  Role = 2
)

func (r Role) String() string {
	return text.Of(r, "Role", "invalid role", "primary", "backup")
}

// MarshalText returns the text of String.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Waiting is the state in which a node of this role starts.
func (r Role) Waiting() State { return State(r) }

func (r Role) Other() Role { return RolePrimary + RoleBackup - r }

// State is the state of a node. The values up to StatePassive are those of the ZeroMQ
// Guide's programs.
type State uint8

// The states, which package binarystar describes.
const (
	StatePrimary  State = 1
	StateBackup   State = 2
	StateActive   State = 3
	StatePassive  State = 4
	StateYielding State = 5
)

func (s State) String() string {
	return text.Of(s, "State", "invalid state", "primary (waiting)", "backup (waiting)", "active", "passive", "yielding")
}

// MarshalText returns the text of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Event is an input of the machine. Those up to PeerYielding are the peer's state,
// which it repeats.
type Event uint8

const (
	PeerPrimary        = Event(StatePrimary)
	PeerBackup         = Event(StateBackup)
	PeerActive         = Event(StateActive)
	PeerPassive        = Event(StatePassive)
	PeerYielding       = Event(StateYielding)
	Vote         Event = 6 // a client asks for service
	Tick         Event = 7 // an interval has passed
	Yield        Event = 8 // the application hands over
	Promote      Event = 9 // an operator says that the peer is gone
)

// rule is the reaction of a node to an event.
type rule uint8

const (
	stay        rule = iota // nothing
	bothWaiting             // neither node is active: the better one becomes active
	follow                  // the peer is active, this node is not: become passive, unless the peer has to step down
	reign                   // this node is active, the peer is not: keep the newest reign, or wait for a peer with more data
	bothActive              // both are active: the older reign yields
	takeOver                // become active if the peer is silent
	stepDown                // let the peer take over, if it can
)

// table is the state machine. A vote is accepted if the node is active afterwards.
//
// For guide programs, it is the guide's table, except for bothActive and for two passive nodes,
// where a guide program ends.
var table = [...][10]rule{
	StatePrimary: {
		PeerPrimary:  stay, // two primaries: a configuration error
		PeerBackup:   bothWaiting,
		PeerActive:   follow,
		PeerPassive:  bothWaiting,
		PeerYielding: bothWaiting,
		Vote:         takeOver,
		Tick:         takeOver,
		Yield:        stay,
		Promote:      takeOver,
	},
	StateBackup: {
		PeerPrimary:  bothWaiting,
		PeerBackup:   stay,
		PeerActive:   follow,
		PeerPassive:  bothWaiting,
		PeerYielding: bothWaiting,
		Vote:         stay, // a backup that has not heard its peer: the peer's data may be newer
		Tick:         stay,
		Yield:        stay,
		Promote:      takeOver,
	},
	StateActive: {
		PeerPrimary:  reign,
		PeerBackup:   reign,
		PeerActive:   bothActive,
		PeerPassive:  reign,
		PeerYielding: reign,
		Vote:         stay,
		Tick:         stay,
		Yield:        stepDown,
		Promote:      stay,
	},
	StatePassive: {
		PeerPrimary:  bothWaiting, // the peer has restarted
		PeerBackup:   bothWaiting,
		PeerActive:   follow,
		PeerPassive:  bothWaiting,
		PeerYielding: bothWaiting,
		Vote:         takeOver,
		Tick:         takeOver,
		Yield:        stay,
		Promote:      takeOver,
	},
	StateYielding: {
		PeerPrimary:  bothWaiting,
		PeerBackup:   bothWaiting,
		PeerActive:   follow,
		PeerPassive:  bothWaiting, // the peer has not heard yet, and will win
		PeerYielding: bothWaiting,
		Vote:         takeOver,
		Tick:         takeOver,
		Yield:        stay,
		Promote:      takeOver,
	},
}

// Reason is the reason for a node's state.
type Reason uint8

// The reasons, which package binarystar describes.
const (
	ReasonStarted Reason = iota
	ReasonPeerActive
	ReasonPeerNewer
	ReasonElected
	ReasonPeerSilent
	ReasonHandedOver
	ReasonPromoted
	ReasonPeerMore
)

func (r Reason) String() string {
	return text.Of(r, "Reason", "started", "peer is active", "peer's reign is newer", "better candidate", "peer is silent", "handed over", "promoted", "peer has more data")
}

// MarshalText returns the text of String.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Candidate is the state that a node announces.
type Candidate struct {
	State   State
	Role    Role
	Epoch   uint64
	Payload []byte
	Guide   bool // a guide program: only its state is known
}

// Machine is a node without sockets, clock or goroutines. It is a value: Step and Hear
// return the next one. Times are on any monotonic clock.
type Machine struct {
	Voteless bool                            // take over without a vote
	Compare  func(own, peer []byte) int      // of payloads; may be nil
	Copied   func(active, other []byte) bool // of payloads; may be nil

	Role    Role
	State   State
	Reason  Reason
	Epoch   uint64        // the reign that this node last served or followed
	Payload []byte        // describes the application's data now; set it before each Step and Hear
	Peer    Candidate     // as last heard; its state is 0 before
	Heard   time.Duration // when the peer was last heard

	timeout  time.Duration
	table    *[len(table)][len(table[0])]rule // another one in tests
	newest   uint64                           // the newest reign that it knows
	deadline time.Duration                    // the peer is silent if it is not heard until then
	ran      time.Duration                    // time of the last step
	doubt    time.Duration                    // an active node accepts no vote until then
}

// NewMachine returns the machine of a node that starts.
func NewMachine(role Role, timeout, now time.Duration, epoch uint64) Machine {
	return Machine{
		Role: role, timeout: timeout, table: &table,
		State: role.Waiting(), Epoch: epoch, newest: epoch,
		deadline: now + timeout, ran: now,
	}
}

// Announced returns the state that is sent to the peer. A guide program does not know
// StateYielding; it takes over from a waiting peer as well.
func (m *Machine) Announced(guide bool) State {
	if m.State == StateYielding && guide {
		return m.Role.Waiting()
	}
	return m.State
}

// Silent reports whether the peer has not been heard for the time-out.
func (m *Machine) Silent(now time.Duration) bool { return now >= m.deadline }

// Accepts reports whether the node serves a client's request.
func (m *Machine) Accepts(now time.Duration) bool {
	return m.State == StateActive && now >= m.doubt
}

// CanTakeOver reports whether the node is not active, and a vote would make it so.
func (m *Machine) CanTakeOver(now time.Duration) bool {
	return m.State != StateActive && m.Step(now, Vote).State == StateActive
}

// Hear returns the machine after a message of the peer.
func (m Machine) Hear(now time.Duration, peer Candidate) Machine {
	m.wake(now)
	m.Peer = peer
	m.newest = max(m.newest, peer.Epoch)
	m.Heard, m.deadline = now, now+m.timeout
	m.apply(now, Event(peer.State))
	return m
}

// Step returns the machine after another event: vote, tick, yield or promote.
func (m Machine) Step(now time.Duration, e Event) Machine {
	m.wake(now)
	m.apply(now, e)
	return m
}

// wake detects that the node did not run for the time-out, for example in a suspended
// process. Then it does not know whether the peer was silent, or has taken over.
func (m *Machine) wake(now time.Duration) {
	if now-m.ran >= m.timeout {
		m.deadline = now + m.timeout
		m.doubt = now + m.timeout
	}
	m.ran = now
}

func (m *Machine) apply(now time.Duration, e Event) {
	switch m.table[m.State][e] {
	case bothWaiting:
		if m.better() {
			m.become(StateActive, ReasonElected)
		}
	case follow:
		switch {
		case m.outranks(m.Own(), m.Peer):
			return // the peer steps down when it hears that: until then it may accept what this node lacks
		case m.State != StatePassive:
			m.become(StatePassive, ReasonPeerActive)
		}
		m.Epoch = max(m.Epoch, m.Peer.Epoch)
	case reign:
		switch {
		case m.outranks(m.Peer, m.Own()):
			m.become(m.Role.Waiting(), ReasonPeerMore)
		case m.newest > m.Epoch:
			m.raise()
		}
	case bothActive:
		m.resolve()
	case takeOver:
		switch {
		case !m.Silent(now):
		case e == Promote:
			m.become(StateActive, ReasonPromoted)
		case e == Vote, m.Voteless:
			m.become(StateActive, ReasonPeerSilent)
		}
	case stepDown:
		if m.Peer.State == StatePassive && !m.Silent(now) {
			m.become(StateYielding, ReasonHandedOver)
		}
	}
}

func (m *Machine) become(s State, why Reason) {
	m.State, m.Reason = s, why
	if s == StateActive {
		m.raise()
		m.doubt = 0
	}
}

// raise begins a reign that is newer than all known ones.
func (m *Machine) raise() {
	m.newest = min(m.newest+1, MaxEpoch)
	m.Epoch = m.newest
}

// resolve decides which of two active nodes continues: the one with more data, otherwise
// the one with the newer reign, and then the primary. Each side that notices equal reigns
// raises its epoch, so that an epoch does not stand for two histories. Two nodes of the
// same role and with the same data, a configuration error, both continue.
func (m *Machine) resolve() {
	p := m.Peer
	equal := !p.Guide && p.Epoch == m.Epoch
	byRole := (equal || p.Guide) && m.Role == RoleBackup && p.Role == RolePrimary
	switch {
	case m.outranks(m.Own(), p):
		if m.newest > m.Epoch || equal {
			m.raise()
		}
		return
	case m.outranks(p, m.Own()), !p.Guide && p.Epoch > m.Epoch, byRole:
		m.become(StatePassive, ReasonPeerNewer)
		m.Epoch = max(m.Epoch, p.Epoch)
	}
	if equal && m.Role != p.Role {
		m.raise()
	}
}

// outranks reports whether node a should serve although b is active: a has data that b
// lacks, whatever their reigns are. That is the case if b started with older data, or
// none, and became active without hearing a. A node that copies b's data does not
// outrank b: b's payload is older than the message, and a may have received newer data
// since.
func (m *Machine) outranks(a, b Candidate) bool {
	if m.Copied != nil && m.Copied(b.Payload, a.Payload) {
		return false
	}
	return m.payloads(a, b) > 0
}

// payloads compares the data of two nodes. Those of a guide program are not known.
func (m *Machine) payloads(a, b Candidate) int {
	if m.Compare == nil || a.Guide || b.Guide {
		return 0
	}
	return m.Compare(a.Payload, b.Payload)
}

// Own returns the state that this node announces.
func (m *Machine) Own() Candidate {
	return Candidate{State: m.State, Role: m.Role, Epoch: m.Epoch, Payload: m.Payload}
}

// better reports whether this node rather than the peer should become active, when
// neither is. Both nodes get opposite results, from their data, states, reigns and roles,
// in this order: an active node that has restarted can have more data than the passive
// one has copied. A node that yields has made sure that the passive one has everything,
// though it may not have heard so; then the data do not count.
func (m *Machine) better() bool {
	p := m.Peer
	if n := m.payloads(m.Own(), p); n != 0 && m.State != StateYielding && p.State != StateYielding {
		return n > 0
	}
	if own, other := standing(m.State, p.Guide), standing(p.State, p.Guide); own != other {
		return own > other
	}
	if !p.Guide && m.Epoch != p.Epoch {
		return m.Epoch > p.Epoch
	}
	return m.Role == RolePrimary && p.Role == RoleBackup
}

// standing ranks nodes that are not active: a passive one has followed its peer, a
// yielding one wants to be followed, a waiting one has just started. A guide program
// treats yielding as waiting.
func standing(s State, guide bool) int {
	switch {
	case s == StatePassive:
		return 2
	case s == StateYielding && !guide:
		return 1
	}
	return 0
}
