package freelance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

var (
	// ErrClosed is returned by the methods of a client or server that was closed.
	// It Is net.ErrClosed.
	ErrClosed = fmt.Errorf("freelance: closed: %w", net.ErrClosed)

	// ErrNoBody is returned for a request without a frame, which the protocol
	// cannot express.
	ErrNoBody = errors.New("freelance: a request needs at least one frame")

	// ErrTooManyRequests is returned by a client that has
	// ClientOptions.MaxRequests in progress.
	ErrTooManyRequests = errors.New("freelance: too many requests in progress")

	// ErrBusy is a server's refusal of a request that it has no room for. Request
	// returns it, wrapped, when all servers have refused. Only servers of this
	// package refuse.
	ErrBusy = errors.New("freelance: server is busy")

	// ErrNoReply is what a *NoReplyError Is.
	ErrNoReply = errors.New("freelance: no reply in time")

	// ErrSilent is why a client ended the connection to a server from which it
	// had heard nothing for ClientOptions.ServerTTL.
	ErrSilent = errors.New("freelance: server is silent")

	// ErrUnknownServer is returned by Disconnect for an endpoint that is not
	// connected.
	ErrUnknownServer = errors.New("freelance: no such server")
)

// OptionError is one thing that is wrong with options. Constructors return all of
// them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "freelance: option " + e.Field + " " + e.Reason }

// HandlerError is the error that a server's Handler returned. Only servers of this
// package report it.
type HandlerError struct {
	Server string // endpoint
	Text   string
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("freelance: %s refused the request: %s", e.Server, e.Text)
}

// NoReplyError says that a request had no reply by its deadline, and why. It Is
// ErrNoReply and context.DeadlineExceeded.
type NoReplyError struct {
	// Servers tells of each server, in the client's order, as it was at the
	// deadline.
	Servers []Attempt
}

// Attempt is what became of a request at one server.
type Attempt struct {
	Server string      // endpoint
	State  ServerState // of the server
	Sent   bool        // whether the request was sent to it
	Err    error       // why it refused the request, or why there is no connection; may be nil
}

func (a Attempt) String() string {
	text := a.Server + ": "
	switch {
	case errors.Is(a.Err, ErrBusy):
		return text + "busy"
	case a.State == Connecting && a.Err != nil:
		text += "no connection (" + a.Err.Error() + ")"
	case a.State == Connecting:
		text += "no connection"
	case a.State == Silent:
		text += "silent"
	case a.Sent:
		return text + "sent, no reply"
	default:
		return text + "not asked"
	}
	if a.Sent {
		text += ", sent"
	}
	return text
}

func (e *NoReplyError) Error() string {
	if len(e.Servers) == 0 {
		return "freelance: no reply in time: no server is known"
	}
	parts := make([]string, len(e.Servers))
	for i, a := range e.Servers {
		parts[i] = a.String()
	}
	return "freelance: no reply in time: " + strings.Join(parts, "; ")
}

// Is reports whether target is ErrNoReply or context.DeadlineExceeded.
func (e *NoReplyError) Is(target error) bool {
	return target == ErrNoReply || target == context.DeadlineExceeded
}

// Timeout returns true: it makes the error a net.Error.
func (e *NoReplyError) Timeout() bool { return true }

// Temporary returns true: another attempt may succeed.
func (e *NoReplyError) Temporary() bool { return true }
