package chp

import (
	"errors"
	"fmt"
	"net"

	"clustermap/internal/kvmsg"
)

// Conditions. Compare with errors.Is.
var (
	// ErrClosed is returned by every method of a client, server or watch that
	// was closed, also by calls that were waiting at that moment. It Is
	// net.ErrClosed.
	ErrClosed = fmt.Errorf("chp: closed: %w", net.ErrClosed)

	// ErrServing is returned by Server.Serve while another call serves.
	ErrServing = errors.New("chp: the server serves already")

	// ErrLagged ends a watch whose queue overflowed because its events were
	// not fetched in time. What it has missed is not known; watch again to
	// begin with a new snapshot.
	ErrLagged = errors.New("chp: watch fell behind its queue")

	// ErrUncertain is returned for an update that may have been applied or not.
	// With servers of this package that happens only when the map that it was sent
	// to is gone: the client follows another server, or one that was started anew
	// without its map. In rare cases a server does not know any more: when it was
	// restarted and had refused updates just before, or when 65,536 other clients
	// have written since. With servers of other kinds it happens when a connection
	// breaks before the update came back, and when the server went past it.
	// The client does not send the update again. Setting the same value again is
	// harmless if nobody else writes the key.
	ErrUncertain = errors.New("chp: the update was sent and did not come back")

	// ErrSilent is why a client leaves a server that sends nothing for
	// ClientOptions.SyncTimeout or HeartbeatTimeout.
	ErrSilent = errors.New("chp: the server is silent")

	// ErrStandby is why a client leaves a server of a pair that is not the active
	// one: it tries the next server at once, and this one again after a fraction of
	// a second. ClientOptions.OnFailure is told of it.
	ErrStandby = errors.New("chp: the server is the passive one of a pair, or does not know yet")

	// ErrRefused is returned for an update that the server refused, and so did
	// not apply. The error also wraps a [*MessageError] with the reason, unless the
	// connection broke before the server could tell it.
	ErrRefused = errors.New("chp: the server refused the update")

	// ErrOutsideSubtrees is returned for a key or subtree outside of
	// ClientOptions.Subtrees, where this client cannot see what happens to it.
	ErrOutsideSubtrees = errors.New("chp: outside of the client's subtrees")

	// ErrEmptyValue is returned by Set and SetSync for a value without bytes:
	// in CHP that is how a key is deleted. Use Delete.
	ErrEmptyValue = errors.New("chp: an empty value deletes the key; use Delete for that")
)

// CollectorError says that a server's collector does not take this client: its
// socket is of another type or has another security mechanism, it denies the
// client's credentials, or it does not speak ZMTP, although the client gets the
// server's snapshots and updates. Updates that waited to be sent get this error and
// are not sent; the client goes on reading, and the next update tries again.
type CollectorError struct {
	Server string // as ClientOptions.Servers names it
	Err    error
}

func (e *CollectorError) Error() string {
	return fmt.Sprintf("chp: the collector of %s does not take this client: %v", e.Server, e.Err)
}

// Unwrap returns Err.
func (e *CollectorError) Unwrap() error { return e.Err }

// SubtreeError says what is wrong with a subtree specification, which is "",
// a subtree such as "/a/b/", or one key. Trying the same text again does not
// help.
type SubtreeError struct {
	Subtree string
	Reason  string
}

func (e *SubtreeError) Error() string {
	return fmt.Sprintf("chp: subtree %q %s", e.Subtree, e.Reason)
}

// OptionError says what is wrong with one field of ClientOptions or ServerOptions. All faults
// are reported at once, joined.
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "chp: option " + e.Field + ": " + e.Reason }

// refusedErrors are values made once, since any number of updates can be
// refused.
var refusedErrors = func() (errs [kvmsg.ReasonCount]error) {
	for r := range errs {
		errs[r] = fmt.Errorf("%w: %w", ErrRefused, &MessageError{Reason: Reason(r)})
	}
	return errs
}()

// refusedFor returns the error for an update that the server refused.
func refusedFor(r Reason) error {
	switch {
	case int(r) < kvmsg.ReasonCount:
		return refusedErrors[r]
	case r == skipUnknown:
		return ErrRefused
	}
	return fmt.Errorf("%w: %w", ErrRefused, &MessageError{Reason: r})
}
