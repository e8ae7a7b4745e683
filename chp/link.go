package chp

import "fmt"

// LinkEvent tells what became of a client's link to its servers. Each event that
// begins a link (LinkConnected, LinkResynced, LinkFailedOver) is followed by a
// LinkLost before the next one begins.
type LinkEvent struct {
	Kind   LinkKind
	Server string // as ClientOptions.Servers names it
	Former string // LinkFailedOver: the server that was followed before

	// Sequence is that of the new snapshot, or, with LinkLost, of the last update
	// that was applied.
	Sequence int64

	Err error // LinkLost: why, as ClientOptions.OnFailure is told
}

// LinkKind is what a [LinkEvent] tells.
type LinkKind uint8

// Kinds of link events.
const (
	LinkConnected  LinkKind = iota + 1 // the client follows a server for the first time
	LinkLost                           // the client no longer follows a server; what it has stays readable
	LinkResynced                       // the client follows the same server as before, with a new snapshot
	LinkFailedOver                     // the client follows another server than before
)

// String returns connected, lost, resynced or failed over.
func (k LinkKind) String() string {
	switch k {
	case LinkConnected:
		return "connected"
	case LinkLost:
		return "lost"
	case LinkResynced:
		return "resynced"
	case LinkFailedOver:
		return "failed over"
	}
	return fmt.Sprintf("LinkKind(%d)", uint8(k))
}

// links tells the application of links. Only the client's goroutine uses it.
type links struct {
	server string // that was followed last, "" if none was
	linked bool   // and still is
}

// linked tells that the client follows a server.
func (c *Client) linked(server string) {
	l := &c.links
	e := LinkEvent{Kind: LinkConnected, Server: server, Sequence: c.Sequence()}
	switch l.server {
	case "":
	case server:
		e.Kind = LinkResynced
	default:
		e.Kind, e.Former = LinkFailedOver, l.server
	}
	l.server, l.linked = server, true
	c.tellLink(e)
}

// unlinked tells that the client's server is no longer followed, if it was.
func (c *Client) unlinked(err error) {
	if l := &c.links; l.linked {
		l.linked = false
		c.tellLink(LinkEvent{Kind: LinkLost, Server: l.server, Sequence: c.Sequence(), Err: err})
	}
}

func (c *Client) tellLink(e LinkEvent) {
	if c.opts.OnLink != nil && c.ctx.Err() == nil {
		c.opts.OnLink(e)
	}
}
