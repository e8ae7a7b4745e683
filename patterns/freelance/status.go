package freelance

import (
	"encoding/json"
	"time"

	"clustermap/internal/text"
)

// ServerState is a client's view of a server. Only a ServerAlive server gets requests.
type ServerState uint8

const (
	// ServerConnecting means that there is no connection.
	ServerConnecting ServerState = iota
	// ServerAlive means that there is a connection and that the server is not silent.
	ServerAlive
	// ServerSilent means that there is a connection, but that no message arrived for
	// ServerTTL, or during the server's share of a request's time.
	ServerSilent
)

func (s ServerState) String() string {
	return text.Of(s, "ServerState", "connecting", "alive", "silent")
}

// MarshalText returns the text of String.
func (s ServerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ServerStatus is the state of a server as far as a client knows it.
type ServerStatus struct {
	Endpoint string
	State    ServerState
	// Identity is the server's identity: according to RFC 10, its endpoint. The
	// client does not depend on it.
	Identity string
	Heard    time.Time // when the last message arrived, or when it connected; zero if not connected
	Waiting  int       // requests that wait for its reply
	Err      error     `json:",omitempty"` // why there is no connection, if known
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (s ServerStatus) MarshalJSON() ([]byte, error) {
	type fields ServerStatus // without this method
	s.Err = text.Error(s.Err)
	return json.Marshal(fields(s))
}

// ClientStats has the counters of a client.
type ClientStats struct {
	Requests  uint64 // started
	Replies   uint64 // returned to callers
	TimedOut  uint64 // requests without a reply by their deadline
	Resent    uint64 // times a request went to another server
	Refused   uint64 // refusals and handler errors received
	Pings     uint64 // sent
	Pongs     uint64 // received
	Silences  uint64 // times a server became silent
	Late      uint64 // replies dropped because their request had ended
	Foreign   uint64 // replies dropped because their request was not sent over that connection
	Malformed uint64 // messages dropped that are neither replies nor PONGs
	Pending   int    // requests in progress now
}

// Stats returns the current counters.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Pending = len(c.pending)
	return s
}

// Servers returns the status of all servers, in order of preference.
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
		all[i].Identity, _ = l.peer.Property("identity")
		all[i].Heard = l.heard
		for _, k := range c.pending {
			if k.waitsFor() == l.peer {
				all[i].Waiting++
			}
		}
	}
	return all
}

// client.mu must be held.
func (l *link) state() ServerState {
	switch {
	case l.peer == nil:
		return ServerConnecting
	case l.silent:
		return ServerSilent
	}
	return ServerAlive
}

// ServerStats has the counters of a server. A reply can reach its client a moment before
// Replies or Failed counts it.
type ServerStats struct {
	Requests  uint64 // received
	Replies   uint64 // queued for their clients
	Failed    uint64 // requests whose handler returned an error or too large a reply
	Busy      uint64 // requests refused because there was no room, or during Shutdown
	Expired   uint64 // requests refused because they waited for MaxWait
	Dropped   uint64 // replies dropped because the client was gone or its queue was full
	Pings     uint64 // received
	Malformed uint64 // messages dropped that are neither requests nor PING
	Waiting   int    // requests that wait for a handler now
	Active    int    // handlers that run now
}
