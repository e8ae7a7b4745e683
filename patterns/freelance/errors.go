package freelance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"clustermap/internal/closed"
	"clustermap/internal/option"
	"clustermap/internal/text"
	"clustermap/internal/visible"
)

var (
	// ErrClosed is returned by the methods of a client or server that was closed.
	// It matches net.ErrClosed (errors.Is).
	ErrClosed = closed.Error("freelance: closed")

	// ErrNoBody is returned for a request without frames, which the protocol does
	// not allow.
	ErrNoBody = errors.New("freelance: a request needs at least one frame")

	// ErrTooManyRequests is returned while a client has ClientOptions.MaxRequests
	// requests in progress.
	ErrTooManyRequests = errors.New("freelance: too many requests in progress")

	// ErrBusy is returned when all servers have refused a request because they
	// have no room for it. Only servers of this package refuse requests.
	ErrBusy = errors.New("freelance: server is busy")

	// ErrNoReply matches every *NoReplyError (errors.Is).
	ErrNoReply = errors.New("freelance: no reply in time")

	// ErrSilent is the reason in sockets.Event for which a client ended the
	// connection to a server that was silent for ClientOptions.ServerTTL.
	ErrSilent = errors.New("freelance: server is silent")

	// ErrUnknownServer is returned by Disconnect for an endpoint that is not one
	// of the client's servers.
	ErrUnknownServer = errors.New("freelance: no such server")
)

// OptionError describes one invalid field of ClientOptions or ServerOptions.
// Constructors report all invalid fields at once, joined by errors.Join.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// HandlerError reports that a server's Handler returned an error. Only servers of this
// package report it.
type HandlerError struct {
	Server string // endpoint
	Text   string // of the handler's error, up to 1024 bytes
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("freelance: handler error of %s: %s", e.Server, visible.String(e.Text))
}

// NoReplyError reports that a request had no reply by its deadline. It matches
// ErrNoReply and context.DeadlineExceeded (errors.Is).
type NoReplyError struct {
	// Servers describes each server at the deadline, in order of preference.
	Servers []Attempt
}

// Attempt describes a request's attempt at one server.
type Attempt struct {
	Server string      // endpoint
	State  ServerState // of the server
	Sent   bool        // the request was sent to the server
	Err    error       `json:",omitempty"` // why the server refused the request or is not connected, if known
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (a Attempt) MarshalJSON() ([]byte, error) {
	type fields Attempt // without this method
	a.Err = text.Error(a.Err)
	return json.Marshal(fields(a))
}

func (a Attempt) String() string {
	text := a.Server + ": "
	switch {
	case errors.Is(a.Err, ErrBusy):
		return text + "busy"
	case a.State == ServerConnecting && a.Err != nil:
		text += "no connection (" + a.Err.Error() + ")"
	case a.State == ServerConnecting:
		text += "no connection"
	case a.State == ServerSilent:
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
		return "freelance: no reply in time: the client has no servers"
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
