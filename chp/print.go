package chp

import (
	"fmt"
	"io"
	"strings"
)

// String returns the client's servers and its state.
func (c *Client) String() string {
	state, server := c.follower.State()
	if server == "" {
		return fmt.Sprintf("chp.Client(%s, %v)", strings.Join(c.opts.Servers, " "), state)
	}
	return fmt.Sprintf("chp.Client(%s, %v with %s)", strings.Join(c.opts.Servers, " "), state, server)
}

// Format prints the result of String for every verb: other fields of a client change
// while it runs.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// String returns the endpoint on which the server listens.
func (s *Server) String() string {
	if e := s.Endpoints(); e.Snapshot != "" {
		return "chp.Server(" + e.Snapshot + ")"
	}
	return "chp.Server(not listening)"
}

// Format prints the result of String for every verb: other fields of a server change
// while it runs.
func (s *Server) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// String returns the key of the registration.
func (l *Registration) String() string { return fmt.Sprintf("chp.Registration(%q)", l.key) }

// Format prints the result of String for every verb: other fields of a registration change
// while it runs.
func (l *Registration) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, l.String()) }

// String returns the prefix of the view and its number of keys.
func (v *View[T]) String() string { return fmt.Sprintf("chp.View(%q, keys: %d)", v.prefix, v.Len()) }

// Format prints the result of String for every verb: other fields of a view change
// while it runs.
func (v *View[T]) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, v.String()) }

// String returns the subtrees that the watch reports; "" is the whole map.
func (w *Watch) String() string { return fmt.Sprintf("chp.Watch(%q)", w.feed.Subtrees()) }

// Format prints the result of String for every verb: other fields of a watch change
// while it is in use.
func (w *Watch) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, w.String()) }

// String returns whether the outcome is known.
func (o *Outcome) String() string {
	select {
	case <-o.Done():
		return "chp.Outcome(known)"
	default:
		return "chp.Outcome(pending)"
	}
}

// Format implements fmt.Formatter, so that every verb prints the text of String.
func (o *Outcome) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }
