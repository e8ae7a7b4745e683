package binarystar

import "time"

// Role is the configured role of a node. It decides ties, and which node becomes active
// when both start.
type Role uint8

// The roles. A pair has one of each.
const (
	RolePrimary Role = 1
	RoleBackup  Role = 2
)

func (r Role) String() string {
	switch r {
	case RolePrimary:
		return "primary"
	case RoleBackup:
		return "backup"
	}
	return "invalid role"
}

// MarshalText returns the text of String.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// waiting is the state in which a node of this role starts.
func (r Role) waiting() State { return State(r) }

func (r Role) other() Role { return RolePrimary + RoleBackup - r }

// State is the state of a node. The values up to StatePassive are those of the ZeroMQ
// Guide's programs.
type State uint8

const (
	// StatePrimary and StateBackup are waiting states, one for each role: the node
	// has started, and does not know yet whether to become active or passive.
	StatePrimary State = 1
	StateBackup  State = 2
	// StateActive means that the node serves clients.
	StateActive State = 3
	// StatePassive means that the node follows the active peer and can take over.
	StatePassive State = 4
	// StateYielding means that the node has stopped serving (Handover) and waits for
	// the peer to take over. To guide programs it announces the waiting state of its
	// role instead, which also makes them take over.
	StateYielding State = 5
)

func (s State) String() string {
	switch s {
	case StatePrimary:
		return "primary (waiting)"
	case StateBackup:
		return "backup (waiting)"
	case StateActive:
		return "active"
	case StatePassive:
		return "passive"
	case StateYielding:
		return "yielding"
	}
	return "invalid state"
}

// MarshalText returns the text of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// event is an input of the machine. Those up to peerYielding are the peer's state,
// which it repeats.
type event uint8

const (
	peerPrimary        = event(StatePrimary)
	peerBackup         = event(StateBackup)
	peerActive         = event(StateActive)
	peerPassive        = event(StatePassive)
	peerYielding       = event(StateYielding)
	vote         event = 6 // a client asks for service
	tick         event = 7 // an interval has passed
	yield        event = 8 // the application hands over
)

// rule is the reaction of a node to an event.
type rule uint8

const (
	stay     rule = iota // nothing
	contest              // neither node is active: the better one becomes active
	follow               // the peer is active, this node is not: become passive
	reign                // this node is active, the peer is not: keep the newest reign
	duel                 // both are active: the older reign yields
	takeOver             // become active if the peer is silent
	stepDown             // let the peer take over, if it can
)

// table is the state machine. A vote is accepted if the node is active afterwards.
//
// For guide programs, it is the guide's table, except for duel and for two passive nodes,
// where a guide program ends.
var table = [...][9]rule{
	StatePrimary: {
		peerPrimary:  stay, // two primaries: a configuration error
		peerBackup:   contest,
		peerActive:   follow,
		peerPassive:  contest,
		peerYielding: contest,
		vote:         takeOver,
		tick:         takeOver,
		yield:        stay,
	},
	StateBackup: {
		peerPrimary:  contest,
		peerBackup:   stay,
		peerActive:   follow,
		peerPassive:  contest,
		peerYielding: contest,
		vote:         stay, // a backup that has not heard its peer: the peer's data may be newer
		tick:         stay,
		yield:        stay,
	},
	StateActive: {
		peerPrimary:  reign,
		peerBackup:   reign,
		peerActive:   duel,
		peerPassive:  reign,
		peerYielding: reign,
		vote:         stay,
		tick:         stay,
		yield:        stepDown,
	},
	StatePassive: {
		peerPrimary:  contest, // the peer has restarted
		peerBackup:   contest,
		peerActive:   follow,
		peerPassive:  contest,
		peerYielding: contest,
		vote:         takeOver,
		tick:         takeOver,
		yield:        stay,
	},
	StateYielding: {
		peerPrimary:  contest,
		peerBackup:   contest,
		peerActive:   follow,
		peerPassive:  contest, // the peer has not heard yet, and will win
		peerYielding: contest,
		vote:         takeOver,
		tick:         takeOver,
		yield:        stay,
	},
}

// Reason is the reason for a node's state.
type Reason uint8

const (
	// ReasonStarted means that the node has just started.
	ReasonStarted Reason = iota
	// ReasonPeerActive means that the peer is active, so this node is passive.
	ReasonPeerActive
	// ReasonPeerNewer means that both were active, and the peer continues.
	ReasonPeerNewer
	// ReasonElected means that neither was active, and this node was the better candidate.
	ReasonElected
	// ReasonPeerSilent means that the peer was silent for Options.Timeout, and, unless
	// Options.Voteless, a client has voted.
	ReasonPeerSilent
	// ReasonHandedOver means that the application has called Handover.
	ReasonHandedOver
)

func (r Reason) String() string {
	switch r {
	case ReasonStarted:
		return "started"
	case ReasonPeerActive:
		return "peer is active"
	case ReasonPeerNewer:
		return "peer's reign is newer"
	case ReasonElected:
		return "better candidate"
	case ReasonPeerSilent:
		return "peer is silent"
	case ReasonHandedOver:
		return "handed over"
	}
	return "invalid reason"
}

// MarshalText returns the text of String.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MaxEpoch is the highest epoch.
const MaxEpoch = 1<<63 - 1

// candidate is the state that a node announces.
type candidate struct {
	state   State
	role    Role
	epoch   uint64
	payload []byte
	guide   bool // a guide program: only its state is known
}

// machine is a node without sockets, clock or goroutines. It is a value: step and hear
// return the next one. Times are on any monotonic clock.
type machine struct {
	role     Role
	timeout  time.Duration
	voteless bool                             // take over without a vote
	compare  func(own, peer []byte) int       // of payloads; may be nil
	lost     func(active, other []byte) bool  // of payloads; may be nil
	copied   func(active, other []byte) bool  // of payloads; may be nil
	table    *[len(table)][len(table[0])]rule // another one in tests

	state   State
	reason  Reason
	epoch   uint64 // the reign that this node last served or followed
	newest  uint64 // the newest reign that it knows
	payload []byte

	peer     candidate     // as last heard; its state is 0 before
	heard    time.Duration // when the peer was last heard
	deadline time.Duration // the peer is silent if it is not heard until then
	ran      time.Duration // time of the last step
	doubt    time.Duration // an active node accepts no vote until then
}

func newMachine(role Role, timeout, now time.Duration, epoch uint64) machine {
	return machine{
		role: role, timeout: timeout, table: &table,
		state: role.waiting(), epoch: epoch, newest: epoch,
		deadline: now + timeout, ran: now,
	}
}

// announced returns the state that is sent to the peer. A guide program does not know
// StateYielding; it takes over from a waiting peer as well.
func (m *machine) announced(guide bool) State {
	if m.state == StateYielding && guide {
		return m.role.waiting()
	}
	return m.state
}

// silent reports whether the peer has not been heard for the time-out.
func (m *machine) silent(now time.Duration) bool { return now >= m.deadline }

// accepts reports whether the node serves a client's request.
func (m *machine) accepts(now time.Duration) bool {
	return m.state == StateActive && now >= m.doubt
}

// hear returns the machine after a message of the peer.
func (m machine) hear(now time.Duration, peer candidate) machine {
	m.wake(now)
	m.peer = peer
	m.newest = max(m.newest, peer.epoch)
	m.heard, m.deadline = now, now+m.timeout
	m.apply(now, event(peer.state))
	return m
}

// step returns the machine after another event: vote, tick or yield.
func (m machine) step(now time.Duration, e event) machine {
	m.wake(now)
	m.apply(now, e)
	return m
}

// wake detects that the node did not run for the time-out, for example in a suspended
// process. Then it does not know whether the peer was silent, or has taken over.
func (m *machine) wake(now time.Duration) {
	if now-m.ran >= m.timeout {
		m.deadline = now + m.timeout
		m.doubt = now + m.timeout
	}
	m.ran = now
}

func (m *machine) apply(now time.Duration, e event) {
	switch m.table[m.state][e] {
	case contest:
		if m.better() {
			m.become(StateActive, ReasonElected)
		}
	case follow:
		switch {
		case m.outranks(m.own(), m.peer):
			m.become(StateActive, ReasonElected)
			return
		case m.state != StatePassive:
			m.become(StatePassive, ReasonPeerActive)
		}
		m.epoch = max(m.epoch, m.peer.epoch)
	case reign:
		// A peer that outranks this node is about to become active.
		if m.newest > m.epoch && !m.outranks(m.peer, m.own()) {
			m.raise()
		}
	case duel:
		m.fight()
	case takeOver:
		if m.silent(now) && (e == vote || m.voteless) {
			m.become(StateActive, ReasonPeerSilent)
		}
	case stepDown:
		if m.peer.state == StatePassive && !m.silent(now) {
			m.become(StateYielding, ReasonHandedOver)
		}
	}
}

func (m *machine) become(s State, why Reason) {
	m.state, m.reason = s, why
	if s == StateActive {
		m.raise()
		m.doubt = 0
	}
}

// raise begins a reign that is newer than all known ones.
func (m *machine) raise() {
	m.newest = min(m.newest+1, MaxEpoch)
	m.epoch = m.newest
}

// fight decides which of two active nodes continues: the one that outranks the other,
// otherwise the one with the newer reign. If the reigns are equal, the larger payload
// decides, and then the role. Each side that notices equal reigns raises its epoch, so
// that an epoch does not stand for two histories. Two nodes of the same role, a
// configuration error, both continue.
func (m *machine) fight() {
	p := m.peer
	equal := !p.guide && p.epoch == m.epoch
	payloads := 0
	if equal && m.compare != nil {
		payloads = m.compare(m.payload, p.payload)
	}
	byRole := (equal || p.guide) && payloads == 0 && m.role == RoleBackup && p.role == RolePrimary
	switch {
	case m.outranks(m.own(), p):
		if m.newest > m.epoch || equal {
			m.raise()
		}
		return
	case m.outranks(p, m.own()),
		!p.guide && p.epoch > m.epoch,
		payloads < 0 && m.role != p.role,
		byRole:
		m.become(StatePassive, ReasonPeerNewer)
		m.epoch = max(m.epoch, p.epoch)
	}
	if equal && m.role != p.role {
		m.raise()
	}
}

// outranks reports whether node a should serve although b is active: b's application
// has lost its data, or has less data and an older reign. That is the case if b started
// without its data and epoch and became active without hearing a. A node that copies
// b's data does not outrank b: b's payload is older than the message, and a may have
// received newer data since.
func (m *machine) outranks(a, b candidate) bool {
	switch {
	case a.guide || b.guide, m.copied != nil && m.copied(b.payload, a.payload):
		return false
	case m.lost != nil && m.lost(b.payload, a.payload):
		return true
	}
	return m.compare != nil && a.epoch > b.epoch && m.compare(a.payload, b.payload) > 0
}

// own returns the state that this node announces.
func (m *machine) own() candidate {
	return candidate{state: m.state, role: m.role, epoch: m.epoch, payload: m.payload}
}

// better reports whether this node rather than the peer should become active, when
// neither is. Both nodes get opposite results, from their states, reigns, payloads and
// roles. Between a passive node and a waiting one the payloads decide first: an active
// node that has restarted can have more data than the passive one has copied. A node
// that yields has made sure that the passive one has everything.
func (m *machine) better() bool {
	p := m.peer
	payloads := 0
	if m.compare != nil && !p.guide {
		payloads = m.compare(m.payload, p.payload)
	}
	if own, other := standing(m.state, p.guide), standing(p.state, p.guide); own != other {
		if payloads != 0 && m.state != StateYielding && p.state != StateYielding {
			return payloads > 0
		}
		return own > other
	}
	if !p.guide {
		if m.epoch != p.epoch {
			return m.epoch > p.epoch
		}
		if payloads != 0 {
			return payloads > 0
		}
	}
	return m.role == RolePrimary && p.role == RoleBackup
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
