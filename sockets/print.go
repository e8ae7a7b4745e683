package sockets

import (
	"fmt"
	"io"
	"strings"
)

// String returns the socket's type and its last endpoint.
func (s *socket) String() string {
	if endpoint := s.LastEndpoint(); endpoint != "" {
		return fmt.Sprintf("sockets.Socket(%v %s)", s.core.Kind(), endpoint)
	}
	return fmt.Sprintf("sockets.Socket(%v)", s.core.Kind())
}

// Format prints the result of String for every verb: other fields of a socket change
// while it is in use.
func (s *socket) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// String returns the peer's socket type, address and identity, if it has one.
func (p *Peer) String() string {
	if len(p.Identity()) > 0 {
		return fmt.Sprintf("sockets.Peer(%s %s, identity %q)", p.SocketType(), p.RemoteAddr(), p.Identity())
	}
	return fmt.Sprintf("sockets.Peer(%s %s)", p.SocketType(), p.RemoteAddr())
}

// Format prints the result of String for every verb: other fields of a peer change
// while it is connected.
func (p *Peer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// MarshalText returns the text of String.
func (p *Peer) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String returns the events, separated by a bar: "in", "out", "in|out", or "none".
func (e PollEvents) String() string {
	var names []string
	if e&PollIn != 0 {
		names = append(names, "in")
	}
	if e&PollOut != 0 {
		names = append(names, "out")
	}
	if rest := e &^ (PollIn | PollOut); rest != 0 {
		names = append(names, fmt.Sprintf("PollEvents(%d)", uint8(rest)))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "|")
}

// MarshalText returns the text of String.
func (e PollEvents) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// String returns the frames as quoted strings, such as ["hello" "world"].
func (m Message) String() string { return fmt.Sprintf("%q", [][]byte(m)) }

// Format prints the result of String for %v. Other verbs, and %#v, print a Message
// like a [][]byte.
func (m Message) Format(f fmt.State, verb rune) {
	if verb == 'v' && !f.Flag('#') {
		verb = 'q'
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), [][]byte(m))
}
