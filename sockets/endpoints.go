package sockets

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"clustermap/internal/engine"
	"clustermap/internal/text"
)

// EndpointState is the state of an endpoint of a socket; see [EndpointStatus].
type EndpointState uint8

const (
	// EndpointBound means that the socket listens on the endpoint.
	EndpointBound = EndpointState(engine.EndpointBound)
	// EndpointConnecting means that an attempt to connect, or its handshake, is in
	// progress.
	EndpointConnecting = EndpointState(engine.EndpointConnecting)
	// EndpointWaiting means that the socket waits before the next attempt. Over
	// inproc it waits until the name is bound.
	EndpointWaiting = EndpointState(engine.EndpointWaiting)
	// EndpointConnected means that there is a connection, whose handshake has
	// succeeded.
	EndpointConnected = EndpointState(engine.EndpointConnected)
)

// String returns "bound", "connecting", "waiting" or "connected".
func (s EndpointState) String() string {
	return text.Of(s, "EndpointState", "", "bound", "connecting", "waiting", "connected")
}

// MarshalText returns the text of String.
func (s EndpointState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// EndpointStatus is a snapshot of one endpoint that was given to Bind or
// Connect.
type EndpointStatus struct {
	Endpoint string // the actual endpoint for Bind, as LastEndpoint returned it; the text given to Connect
	State    EndpointState

	// Peers is the number of connections whose handshake has succeeded: of
	// those accepted on a bound endpoint, and 0 or 1 for Connect.
	Peers int

	// For an endpoint of Connect:

	Attempts int       // failed attempts to connect since the last success
	Err      error     `json:",omitempty"` // why the last attempt failed, or the last connection ended; nil if connected, or if neither has happened
	Next     time.Time // when the next attempt begins, with EndpointWaiting; zero over inproc
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (e EndpointStatus) MarshalJSON() ([]byte, error) {
	type fields EndpointStatus // without this method
	e.Err = text.Error(e.Err)
	return json.Marshal(fields(e))
}

// Endpoints returns a snapshot of all endpoints to which the socket is bound or
// which it connects to, sorted by endpoint, bound ones first. An endpoint that the
// socket has given up is not among them; see EventAbandoned.
func (s *socket) Endpoints() []EndpointStatus {
	var all []EndpointStatus
	for _, e := range s.core.Endpoints() {
		all = append(all, EndpointStatus{e.Endpoint, EndpointState(e.State), e.Peers, e.Attempts, e.Err, e.Next})
	}
	slices.SortStableFunc(all, func(a, b EndpointStatus) int {
		return cmp.Or(cmp.Compare(min(a.State, EndpointConnecting), min(b.State, EndpointConnecting)), strings.Compare(a.Endpoint, b.Endpoint))
	})
	return all
}
