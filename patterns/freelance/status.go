package freelance

import (
	"fmt"
	"time"
)

// ServerState says whether a client can use a server.
type ServerState uint8

const (
	// Connecting: there is no connection.
	Connecting ServerState = iota
	// Alive: connected, and heard within the ServerTTL.
	Alive
	// Silent: connected, but nothing was heard for the ServerTTL, or for as long
	// as a request could wait. It gets no requests until it is heard again.
	Silent
)

func (s ServerState) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Alive:
		return "alive"
	case Silent:
		return "silent"
	}
	return fmt.Sprintf("ServerState(%d)", uint8(s))
}

// ServerStatus is what a client knows of a server.
type ServerStatus struct {
	Endpoint string
	State    ServerState
	// Identity is what the server says it is: its endpoint, according to RFC 10.
	// The client does not depend on it.
	Identity string
	Heard    time.Time // when something came from it; zero if it is not connected
	Waiting  int       // requests that were sent to it and have no reply yet
	Err      error     // why there is no connection, if that is known
}

// ClientStats counts what a client has done.
type ClientStats struct {
	Requests  uint64 // begun
	Replies   uint64 // returned to a caller
	TimedOut  uint64 // requests without a reply in time
	Resent    uint64 // times that a request was sent to a further server
	Refused   uint64 // refusals that came
	Pings     uint64 // sent
	Pongs     uint64 // received
	Silences  uint64 // times that a server became silent
	Late      uint64 // replies dropped because their request had ended
	Foreign   uint64 // replies dropped because no such request was sent over the connection
	Malformed uint64 // messages dropped that are neither reply nor PONG
	Pending   int    // requests in progress now
}

// Stats returns a reading of the counters.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Pending = len(c.pending)
	return s
}

// Servers returns what is known of the servers, in the order of preference.
func (c *Client) Servers() []ServerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]ServerStatus, len(c.links))
	for i, l := range c.links {
		all[i] = ServerStatus{Endpoint: l.endpoint, State: l.state()}
		if l.peer == nil {
			all[i].Err = l.failure()
			continue
		}
		all[i].Identity, all[i].Heard = l.peer.Property("identity"), l.heard
		for _, k := range c.pending {
			if k.over() == l.peer {
				all[i].Waiting++
			}
		}
	}
	return all
}

// state returns the server's state. client.mu must be held.
func (l *link) state() ServerState {
	switch {
	case l.peer == nil:
		return Connecting
	case l.silent:
		return Silent
	}
	return Alive
}

// ServerStats counts what a server has done.
type ServerStats struct {
	Requests  uint64 // received
	Replies   uint64 // queued for their client
	Failed    uint64 // handlers that returned an error
	Busy      uint64 // requests refused because too many waited, or the server shuts down
	Expired   uint64 // requests refused because they had waited for MaxWait
	Dropped   uint64 // replies dropped: the client had gone, or its queue was full
	Pings     uint64 // answered
	Malformed uint64 // messages dropped that are neither request nor PING
	Waiting   int    // requests that wait for a handler now
	Active    int    // handlers that run now
}
