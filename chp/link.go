package chp

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// LinkEvent reports a change of a client's link to its servers. Each event that begins
// a link (LinkConnected, LinkResynced, LinkFailedOver) is followed by a LinkLost before
// the next one begins.
type LinkEvent struct {
	Kind   LinkKind
	Server string // as named in ClientOptions.Servers
	Former string `json:",omitempty"` // LinkFailedOver: the previous server

	// Sequence is that of the new snapshot or, for LinkLost, of the last applied
	// update.
	Sequence int64

	Err error // LinkLost: the reason, as for ClientOptions.OnFailure
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (e LinkEvent) MarshalJSON() ([]byte, error) {
	type fields LinkEvent // without this method
	text := ""
	if e.Err != nil {
		text = e.Err.Error()
	}
	return json.Marshal(struct {
		fields
		Err string `json:",omitempty"`
	}{fields(e), text})
}

// LinkKind is the kind of a [LinkEvent].
type LinkKind uint8

// Kinds of link events.
const (
	LinkConnected  LinkKind = iota + 1 // the client follows a server for the first time
	LinkLost                           // the client no longer follows a server; its state stays readable
	LinkResynced                       // the client follows the previous server again, with a new snapshot
	LinkFailedOver                     // the client follows another server
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

// MarshalText returns the text of String.
func (k LinkKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// links reports link events to the application. Only the client's run goroutine uses
// it.
type links struct {
	server string // the last one that the client followed, or ""
	linked bool   // the client still follows it
	warned bool   // it has logged that it does not
	lost   time.Time
}

// linked reports that the client follows a server.
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
	// Who has read that an outage began reads that it is over.
	level := slog.LevelInfo
	if l.warned {
		level = slog.LevelWarn
	}
	switch e.Kind {
	case LinkConnected:
		c.log.Log(c.ctx, level, "following the server", "server", server)
	case LinkResynced:
		c.log.Log(c.ctx, level, "following the server again", "server", server, "outage", time.Since(l.lost).Round(time.Millisecond))
	case LinkFailedOver:
		c.log.Log(c.ctx, level, "following another server", "server", server, "former", l.server, "outage", time.Since(l.lost).Round(time.Millisecond))
	}
	l.server, l.linked, l.warned = server, true, false
	c.reportLink(e)
}

// unlinked reports that the client no longer follows its server, if it did.
func (c *Client) unlinked(err error) {
	if l := &c.links; l.linked {
		l.linked, l.lost = false, time.Now()
		c.reportLink(LinkEvent{Kind: LinkLost, Server: l.server, Sequence: c.Sequence(), Err: err})
	}
}

func (c *Client) reportLink(e LinkEvent) {
	if c.opts.OnLink != nil && c.ctx.Err() == nil {
		c.opts.OnLink(e)
	}
}
