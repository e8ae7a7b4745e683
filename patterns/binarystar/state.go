package binarystar

import "clustermap/internal/election"

// Role is the configured role of a node. It decides ties, and which node becomes active
// when both start.
type Role = election.Role

// The roles. A pair has one of each.
const (
	RolePrimary = election.RolePrimary
	RoleBackup  = election.RoleBackup
)

// State is the state of a node. The values up to StatePassive are those of the ZeroMQ
// Guide's programs.
type State = election.State

const (
	// StatePrimary and StateBackup are waiting states, one for each role: the node
	// has started, and does not know yet whether to become active or passive.
	StatePrimary = election.StatePrimary
	StateBackup  = election.StateBackup
	// StateActive means that the node serves clients.
	StateActive = election.StateActive
	// StatePassive means that the node follows the active peer and can take over.
	StatePassive = election.StatePassive
	// StateYielding means that the node has stopped serving (Handover) and waits for
	// the peer to take over. To guide programs it announces the waiting state of its
	// role instead, which also makes them take over.
	StateYielding = election.StateYielding
)

// Reason is the reason for a node's state.
type Reason = election.Reason

const (
	// ReasonStarted means that the node has just started.
	ReasonStarted = election.ReasonStarted
	// ReasonPeerActive means that the peer is active, so this node is passive.
	ReasonPeerActive = election.ReasonPeerActive
	// ReasonPeerNewer means that both were active, and the peer continues: it has more
	// data, or a newer reign.
	ReasonPeerNewer = election.ReasonPeerNewer
	// ReasonElected means that neither was active, and this node was the better candidate.
	ReasonElected = election.ReasonElected
	// ReasonPeerSilent means that the peer was silent for Options.Timeout, and, unless
	// Options.Voteless, a client has voted.
	ReasonPeerSilent = election.ReasonPeerSilent
	// ReasonHandedOver means that the application has called Handover.
	ReasonHandedOver = election.ReasonHandedOver
	// ReasonPromoted means that the application has called Promote.
	ReasonPromoted = election.ReasonPromoted
	// ReasonPeerMore means that this node was active, and has stopped because the peer, which was
	// not, has data that it lacks.
	ReasonPeerMore = election.ReasonPeerMore
)
