package sockets

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermap/internal/link"
)

// EndpointState is the state of an endpoint of a socket; see [EndpointStatus].
type EndpointState uint8

const (
	// EndpointBound means that the socket listens on the endpoint.
	EndpointBound EndpointState = iota + 1
	// EndpointConnecting means that an attempt to connect, or its handshake, is in
	// progress.
	EndpointConnecting
	// EndpointWaiting means that the socket waits before the next attempt. Over
	// inproc it waits until the name is bound.
	EndpointWaiting
	// EndpointConnected means that there is a connection, whose handshake has
	// succeeded.
	EndpointConnected
)

// String returns "bound", "connecting", "waiting" or "connected".
func (s EndpointState) String() string {
	return nameOf(s, "EndpointState", "", "bound", "connecting", "waiting", "connected")
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
	Err      error     // why the last attempt failed, or the last connection ended; nil if connected, or if neither has happened
	Next     time.Time // when the next attempt begins, with EndpointWaiting; zero over inproc
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (e EndpointStatus) MarshalJSON() ([]byte, error) {
	type fields EndpointStatus // without this method
	text := ""
	if e.Err != nil {
		text = e.Err.Error()
	}
	return json.Marshal(struct {
		fields
		Err string `json:",omitempty"`
	}{fields(e), text})
}

// Endpoints returns a snapshot of all endpoints to which the socket is bound or
// which it connects to, sorted by endpoint, bound ones first. An endpoint that the
// socket has given up is not among them; see EventAbandoned.
func (s *socket) Endpoints() []EndpointStatus {
	s.mu.Lock()
	var all []EndpointStatus
	accepted := map[string]int{}
	for p := range s.pipes {
		if !p.lasting && p.peer.Load() != nil {
			accepted[p.endpoint]++
		}
	}
	for endpoint := range s.listeners {
		all = append(all, EndpointStatus{Endpoint: endpoint, State: EndpointBound, Peers: accepted[endpoint]})
	}
	for _, same := range s.dialers {
		for _, d := range same {
			all = append(all, d.status())
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(all, func(a, b EndpointStatus) int {
		bound := func(e EndpointStatus) int {
			if e.State == EndpointBound {
				return 0
			}
			return 1
		}
		return cmp.Or(bound(a)-bound(b), strings.Compare(a.Endpoint, b.Endpoint))
	})
	return all
}

// attempts is how the attempts of a dialer go.
type attempts struct {
	mu       sync.Mutex
	failures int // since the last success
	err      error
	next     time.Time
}

// failed records that an attempt has failed, or that a connection has ended: then
// up is true.
func (a *attempts) failed(err error, up bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !up {
		a.failures++
	}
	a.err = err
}

// succeeded records an established connection.
func (a *attempts) succeeded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures, a.err = 0, nil
}

// waits records when the next attempt begins; a zero time stands for now.
func (a *attempts) waits(next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = next
}

// status returns the state of the dialer's endpoint.
func (d *dialer) status() EndpointStatus {
	p := &d.attempts
	p.mu.Lock()
	defer p.mu.Unlock()
	e := EndpointStatus{Endpoint: d.endpoint.Text, State: EndpointConnecting, Attempts: p.failures, Err: p.err}
	switch {
	case d.pipe.peer.Load() != nil:
		e.State, e.Peers, e.Attempts, e.Err = EndpointConnected, 1, 0, nil
	case !p.next.IsZero():
		e.State, e.Next = EndpointWaiting, p.next
	case d.endpoint.Scheme == link.Inproc:
		e.State = EndpointWaiting
	}
	return e
}

// abandon removes a dialer that gives its endpoint up, and reports that with the
// last error as the cause. It reports nothing if the application has caused it, by
// Disconnect or Close. The dialer is removed first, so that the monitor can call
// Connect again.
func (d *dialer) abandon() {
	if d.end() && !d.socket.shut.Load() {
		d.socket.report(Event{Kind: EventAbandoned, Endpoint: d.endpoint.Text, Err: d.attempts.err})
	}
}
