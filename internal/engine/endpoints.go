package engine

import (
	"sync"
	"time"

	"clustermap/internal/link"
)

// EndpointState is the state of an endpoint; see sockets.EndpointState.
type EndpointState uint8

const (
	EndpointBound EndpointState = iota + 1
	EndpointConnecting
	EndpointWaiting
	EndpointConnected
)

// Endpoint is a snapshot of one endpoint that was given to Bind or Connect; see
// sockets.EndpointStatus.
type Endpoint struct {
	Endpoint string
	State    EndpointState
	Peers    int

	Attempts int
	Err      error
	Next     time.Time
}

// Endpoints returns a snapshot of all endpoints to which the socket is bound or
// which it connects to.
func (s *Socket) Endpoints() []Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Endpoint
	accepted := map[string]int{}
	for p := range s.pipes {
		if !p.Lasting && p.peer.Load() != nil {
			accepted[p.Endpoint]++
		}
	}
	for endpoint := range s.endpoints.listeners {
		all = append(all, Endpoint{Endpoint: endpoint, State: EndpointBound, Peers: accepted[endpoint]})
	}
	for _, same := range s.endpoints.dialers {
		for _, d := range same {
			all = append(all, d.status())
		}
	}
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
func (d *dialer) status() Endpoint {
	p := &d.attempts
	p.mu.Lock()
	defer p.mu.Unlock()
	e := Endpoint{Endpoint: d.endpoint.Text, State: EndpointConnecting, Attempts: p.failures, Err: p.err}
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
		d.socket.report(Event{Kind: Abandoned, Endpoint: d.endpoint.Text, Err: d.attempts.err})
	}
}
