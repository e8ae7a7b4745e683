package chp

import (
	"fmt"
	"io"
	"strings"
)

// String returns the client's servers and its state.
func (c *Client) String() string {
	state, server := c.status.get()
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
