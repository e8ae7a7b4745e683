package titanic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"clustermap/internal/closed"
	"clustermap/internal/visible"
)

// Errors of the store, from New (in a *StoreError) and Server.Err. They are wrapped; use
// [errors.Is].
var (
	// ErrLocked means that another process has the store open.
	ErrLocked = errors.New("titanic: another process has the store open")
	// ErrCorrupt means that the store is damaged, or has an unknown format.
	ErrCorrupt = errors.New("titanic: store is corrupt")
	// ErrFailed means that a write or a flush failed, so the content of the disk is
	// unknown. The store accepts no changes until it is opened again, which copies the
	// file. A full disk is not such a failure.
	ErrFailed = errors.New("titanic: store failed")
)

// StoreError is an error of New about the store.
type StoreError struct {
	Dir string
	Err error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("titanic: store %s: %s", e.Dir, strings.TrimPrefix(e.Err.Error(), "titanic: "))
}

// Unwrap returns Err.
func (e *StoreError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *StoreError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Errors of a client, with the server's status code.
var (
	// ErrClosed is returned by a closed client. It matches net.ErrClosed (errors.Is).
	ErrClosed = closed.Error("titanic: closed")
	// ErrPending means that there is no reply yet (300).
	ErrPending = errors.New("titanic: no reply yet")
	// ErrUnknown means that nothing is stored under the UUID: it never was, or it
	// was discarded, or has expired (400).
	ErrUnknown = errors.New("titanic: unknown UUID")
	// ErrInvalid means that the request is invalid: the service's name is not
	// printable or begins with "mmi.", or the request has no body or is too large
	// (400).
	ErrInvalid = errors.New("titanic: request is invalid or too large")
	// ErrServer means that the server cannot handle the request now, for example
	// because its store or its disk is full (500). Try again later. A request of
	// Submit may nevertheless have been stored.
	ErrServer = errors.New("titanic: server cannot handle the request now")
	// ErrProtocol means that the answer does not follow RFC 9.
	ErrProtocol = errors.New("titanic: unexpected answer")
)

// Codes of a RefusedError from the server. Others are from the worker.
const (
	CodeDamaged  = 701 // the stored request is damaged, and was not executed
	CodeTooLarge = 702 // the reply is larger than Options.MaxReplyBytes, or has more than MaxFrames
)

// A RefusedError reports that the worker replied with an error. The error is stored like
// a reply, and the request is not tried again.
type RefusedError struct {
	Code int // see majordomo.Error
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("titanic: request was refused: %d %s", e.Code, visible.String(e.Text))
}

func (e *RefusedError) frames() [][]byte {
	return [][]byte{strconv.AppendInt(nil, int64(e.Code), 10), []byte(e.Text)}
}

// Other errors of the store, which the server reports as a status.
var (
	errFull = errors.New("titanic: store or disk full")
	errGone = errors.New("titanic: nothing is stored under the UUID")
)
