package chp

import (
	"fmt"
	"io"
	"strings"
)

// String returns the servers and how far the client is with one of them.
func (c *Client) String() string {
	state, server := c.status.get()
	if server == "" {
		return fmt.Sprintf("chp.Client(%s, %v)", strings.Join(c.opts.Servers, " "), state)
	}
	return fmt.Sprintf("chp.Client(%s, %v with %s)", strings.Join(c.opts.Servers, " "), state, server)
}

// Format prints what String returns, whatever the verb: what else is in a client
// changes while it runs.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// String returns where the server listens.
func (s *Server) String() string {
	if e := s.Endpoints(); e.Snapshot != "" {
		return "chp.Server(" + e.Snapshot + ")"
	}
	return "chp.Server(not listening)"
}

// Format prints what String returns, whatever the verb: what else is in a server
// changes while it runs.
func (s *Server) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }
