package follow

import (
	"errors"
	"fmt"
	"net"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/text"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Errors that end a session: those of chp with the same names. Together with *GapError and
// the errors of sockets they decide which server is tried next.
var (
	ErrUnreachable  = errors.New("chp: the server cannot be reached")
	ErrDisconnected = errors.New("chp: the connection to the server broke")
	ErrSilent       = errors.New("chp: the server is silent")
	ErrMapTooLarge  = errors.New("chp: the server's map is too large for this client")
	errStandby      = wire.ErrStandby

	ErrNotCHP    = errors.New("chp: the server's answer is not CHP")
	ErrOvertaken = errors.New("chp: the server did not answer, and another one did")

	errNoSubscription = errors.New("chp: the collector does not subscribe")
)

// CollectorError is chp.CollectorError.
type CollectorError struct {
	Server string
	Err    error
}

func (e *CollectorError) Error() string {
	return fmt.Sprintf("chp: the collector of %s does not accept this client: %v", e.Server, e.Err)
}

// Unwrap returns Err.
func (e *CollectorError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *CollectorError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// MixedError is chp.MixedError.
type MixedError struct{ Server, Remote, Other string }

func (e *MixedError) Error() string {
	return fmt.Sprintf("chp: the connections to %s reach different servers, at %s and %s", e.Server, e.Remote, e.Other)
}

// Permanent reports whether further attempts will fail in the same way: see
// chp.ServerFault.
func Permanent(err error) bool {
	for _, e := range []error{wire.ErrModel, ErrMapTooLarge, zmtp.ErrRefused, zmtp.ErrMechanism, sockets.ErrServerKey} {
		if errors.Is(err, e) {
			return true
		}
	}
	if _, denied := errors.AsType[*kvmsg.AccessError](err); denied {
		return true
	}
	name, ok := errors.AsType[*net.DNSError](err)
	return ok && name.IsNotFound
}

// LinkKind is chp.LinkKind.
type LinkKind uint8

// The values of LinkKind.
const (
	LinkConnected LinkKind = iota + 1
	LinkLost
	LinkResynced
	LinkFailedOver
)

// String returns connected, lost, resynced or failed over.
func (k LinkKind) String() string {
	return text.Of(k, "LinkKind", "", "connected", "lost", "resynced", "failed over")
}

// MarshalText returns the text of String.
func (k LinkKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
