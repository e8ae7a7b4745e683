package chp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"clustermap/sockets"
	"clustermap/zmtp"
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
	Err error

	// Silent reports that the present attempt has connected and the server has sent
	// nothing yet. The NotActiveError then wraps ErrSilent.
	Silent bool

	untried bool // the name has an address at which no attempt has failed lately
}

// Permanent reports whether further attempts will fail, too, unless somebody changes the
// client or the server: the server refuses the client's key or has another security
// mechanism, it is of another Clone model, the map is larger than ClientOptions.MaxMapBytes,
// or the host does not exist. It reports false as long as the name of the server has
// addresses that were not tried. The client tries again all the same.
func (f ServerFault) Permanent() bool {
	if f.untried {
		return false
	}
	for _, err := range []error{ErrModel, ErrMapTooLarge, zmtp.ErrRefused, zmtp.ErrMechanism, sockets.ErrServerKey} {
		if errors.Is(f.Err, err) {
			return true
		}
	}
	name, ok := errors.AsType[*net.DNSError](f.Err)
	return ok && name.IsNotFound
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (f ServerFault) MarshalJSON() ([]byte, error) {
	type fields ServerFault // without this method
	text := ""
	if f.Err != nil {
		text = f.Err.Error()
	}
	return json.Marshal(struct {
		fields
		Err string `json:",omitempty"`
	}{fields(f), text})
}

// Phase is how far a client's attempt to follow a server has come.
type Phase uint8

// Phases of an attempt, in their order.
const (
	PhaseIdle        Phase = iota // no attempt is under way
	PhaseConnecting               // not all connections are established
	PhaseSubscribing              // connected; the server has not confirmed the subscriptions
	PhaseSnapshot                 // subscribed; the snapshot is incomplete
	PhaseActive                   // the client follows the server
)

// String returns idle, connecting, subscribing, snapshot or active.
func (p Phase) String() string {
	switch p {
	case PhaseIdle:
		return "idle"
	case PhaseConnecting:
		return "connecting"
	case PhaseSubscribing:
		return "subscribing"
	case PhaseSnapshot:
		return "snapshot"
	case PhaseActive:
		return "active"
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// MarshalText returns the text of String.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

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

// attempt counts the attempts of a client at one of its servers. status.mu guards it.
type attempt struct {
	ServerFault
	running int // attempts under way
}

// began, reached and ended note the phases of an attempt at the server with an index.
func (s *status) began(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempts[index]
	a.running++
	a.Phase = max(a.Phase, PhaseConnecting)
}

func (s *status) reached(index int, p Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[index].Phase = p
}

func (s *status) ended(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempts[index]
	if a.running--; a.running > 0 {
		a.Phase = PhaseConnecting
	} else {
		a.Phase = PhaseIdle
	}
}

// fail records why an attempt failed, unless the failure before it says more: being
// overtaken says less than any, and that a connection broke or could not be made less than
// that the peer is not a CHP server, whose connections may end in any way. untried says that
// the server's name has an address at which no attempt has failed lately.
func (s *status) fail(index int, err error, untried bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempts[index]
	a.untried = untried
	if a.Err != nil && errors.Is(err, errOvertaken) {
		return
	}
	broken := errors.Is(err, ErrDisconnected) || errors.Is(err, ErrUnreachable)
	if foreign(a.Err) && broken && !(ServerFault{Err: err}).Permanent() {
		return
	}
	a.Err = err
}

// foreign reports whether an error says that the peer is not a CHP server.
func foreign(err error) bool {
	return errors.Is(err, zmtp.ErrVersion) || errors.Is(err, zmtp.ErrMalformed) || errors.Is(err, zmtp.ErrIncompatible)
}

// notActive returns an error if the client is not ACTIVE. silent reports whether the
// server of a client that is SYNCING has sent nothing yet.
func (s *status) notActive(err error, silent bool) *NotActiveError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateActive {
		return nil
	}
	e := &NotActiveError{Err: err}
	for _, a := range s.attempts {
		fault := a.ServerFault
		fault.Silent = silent && s.state == StateSyncing && s.server == fault.Server
		e.Servers = append(e.Servers, fault)
	}
	return e
}
