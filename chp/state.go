package chp

import "clustermap/chp/internal/follow"

// State is the state of a client. String returns INITIAL, SYNCING or ACTIVE.
type State = follow.State

// States of a client, as the guide's client has them.
const (
	StateInitial State = follow.StateInitial // no server is connected
	StateSyncing State = follow.StateSyncing // a server is connected, its snapshot is incomplete
	StateActive  State = follow.StateActive  // the replica follows the server
)
