package chp

import (
	"encoding/json"

	"clustermap/chp/internal/follow"
	"clustermap/internal/text"
)

// LinkEvent reports a change of a client's link to its servers. Each event that begins
// a link (LinkConnected, LinkResynced, LinkFailedOver) is followed by a LinkLost before
// the next one begins.
type LinkEvent struct {
	Kind   LinkKind
	Server string // as named in ClientOptions.Servers
	Former string `json:",omitempty"` // LinkFailedOver: the previous server

	// Sequence is that of the state with which the link begins or, for LinkLost, of the last
	// applied update.
	Sequence int64

	Err error `json:",omitempty"` // LinkLost: the reason, as for ClientOptions.OnFailure
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (e LinkEvent) MarshalJSON() ([]byte, error) {
	type fields LinkEvent // without this method
	e.Err = text.Error(e.Err)
	return json.Marshal(fields(e))
}

// LinkKind is the kind of a [LinkEvent]. String returns connected, lost, resynced or failed
// over.
type LinkKind = follow.LinkKind

// Kinds of link events.
const (
	LinkConnected  LinkKind = follow.LinkConnected  // the client follows a server for the first time
	LinkLost       LinkKind = follow.LinkLost       // the client no longer follows a server; its state stays readable
	LinkResynced   LinkKind = follow.LinkResynced   // the client follows the previous server again, with what it has missed or a new snapshot
	LinkFailedOver LinkKind = follow.LinkFailedOver // the client follows another server
)
