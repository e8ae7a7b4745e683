package chp

import (
	"encoding/json"
	"fmt"
	"strings"

	"clustermap/chp/internal/follow"
	"clustermap/internal/text"
)

// NotActiveError reports that a client did not become ACTIVE before a context ended, and
// why not, for each server. It wraps the error of the context and those of the servers,
// so errors.Is(err, context.DeadlineExceeded) works, and errors.Is(err, ErrStandby).
type NotActiveError struct {
	Servers []ServerFault // one for each of ClientOptions.Servers, in that order
	Err     error         // of the context
}

// ServerFault is why a client does not follow a server: how far the present attempt has
// come, and why the last one failed.
type ServerFault struct {
	Server string // as ClientOptions.Servers names it
	Phase  Phase

	// Err is why the last attempt since the client was ACTIVE failed, as for
	// ClientOptions.OnFailure; nil if none has failed. Among others it wraps
	// ErrUnreachable, ErrDisconnected, ErrSilent, ErrStandby or ErrModel, zmtp.ErrRefused
	// if the server denies the client's credentials, zmtp.ErrMechanism if the two have
	// different security mechanisms, or a *CollectorError or *MixedError.
	Err error `json:",omitempty"`

	// Silent reports that the present attempt has connected and the server has sent
	// nothing yet. The NotActiveError then wraps ErrSilent.
	Silent bool

	unsure bool // another attempt may succeed, whatever Err says
}

// Permanent reports whether further attempts will fail, too, unless somebody changes the
// client or the server: the server refuses the client's key or has another security
// mechanism, it is of another Clone model, the map is larger than ClientOptions.MaxMapBytes,
// or the host does not exist. It reports false as long as the name of the server has
// addresses that were not tried, and after only one connection that ended with
// sockets.ErrServerKey. The client still tries again.
func (f ServerFault) Permanent() bool { return !f.unsure && follow.Permanent(f.Err) }

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (f ServerFault) MarshalJSON() ([]byte, error) {
	type fields ServerFault // without this method
	f.Err = text.Error(f.Err)
	return json.Marshal(fields(f))
}

// Phase is how far a client's attempt to follow a server has come. String returns idle,
// connecting, subscribing, snapshot or active.
type Phase = follow.Phase

// Phases of an attempt, in their order.
const (
	PhaseIdle        Phase = follow.PhaseIdle        // no attempt is under way
	PhaseConnecting  Phase = follow.PhaseConnecting  // not all connections are established
	PhaseSubscribing Phase = follow.PhaseSubscribing // connected; the server has not confirmed the subscriptions
	PhaseSnapshot    Phase = follow.PhaseSnapshot    // subscribed; the snapshot is incomplete
	PhaseActive      Phase = follow.PhaseActive      // the client follows the server
)

func (e *NotActiveError) Error() string {
	text := fmt.Appendf(nil, "chp: no server to follow: %v", e.Err)
	separator := ": "
	for _, s := range e.Servers {
		text = append(append(text, separator...), s.String()...)
		separator = "; "
	}
	return string(text)
}

// MarshalText returns the text of Error.
func (e *NotActiveError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Unwrap returns Err and the errors of the servers.
func (e *NotActiveError) Unwrap() []error {
	all := []error{e.Err}
	for _, s := range e.Servers {
		if s.Err != nil {
			all = append(all, s.Err)
		}
		if s.Silent {
			all = append(all, ErrSilent)
		}
	}
	return all
}

// String returns the server and its fault, such as "tcp://a:5556: connected, the snapshot
// is not complete yet".
func (f ServerFault) String() string {
	if f.Err != nil && f.Phase <= PhaseConnecting {
		return f.Server + ": " + f.cause()
	}
	text := f.Server + ": " + f.progress()
	if f.Err != nil {
		text += " (before that: " + f.cause() + ")"
	}
	return text
}

func (f ServerFault) cause() string { return strings.TrimPrefix(f.Err.Error(), "chp: ") }

// progress says how far the present attempt has come.
func (f ServerFault) progress() string {
	switch {
	case f.Phase == PhaseIdle:
		return "not tried yet"
	case f.Phase == PhaseConnecting:
		return "no answer yet"
	case f.Silent:
		return "connected, it has sent nothing yet"
	case f.Phase == PhaseSubscribing:
		return "connected, it has not confirmed the subscriptions yet"
	case f.Phase == PhaseSnapshot:
		return "connected, the snapshot is not complete yet"
	}
	return "the client follows it"
}

// notActive returns an error that wraps err, or nil if the client is ACTIVE.
func (c *Client) notActive(err error) error {
	e := &NotActiveError{Err: err}
	if c.follower.Attempts(func(server string, p Phase, err error, silent, unsure bool) {
		e.Servers = append(e.Servers, ServerFault{Server: server, Phase: p, Err: err, Silent: silent, unsure: unsure})
	}) {
		return nil
	}
	return e
}
