package titanic

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// Errors of a store, by New (in a *StoreError) and by Server.Err. They come wrapped; ask
// with [errors.Is].
var (
	// ErrClosed is returned by a server or a client that was closed. It Is
	// net.ErrClosed.
	ErrClosed = fmt.Errorf("titanic: closed: %w", net.ErrClosed)
	// ErrLocked says that another process has the store open.
	ErrLocked = errors.New("another process has the store open")
	// ErrCorrupt says that the store cannot be read: it is damaged, or of a
	// format that this version does not know.
	ErrCorrupt = errors.New("store is corrupt")
	// ErrFailed says that a write or a flush failed in a way after which nobody
	// knows what is on the disk. The store takes nothing more until it is
	// opened again. A full disk is not such a failure.
	ErrFailed = errors.New("titanic: store failed")
)

// StoreError is an error of New that concerns the store.
type StoreError struct {
	Dir string
	Err error
}

func (e *StoreError) Error() string { return fmt.Sprintf("titanic: store %s: %v", e.Dir, e.Err) }

// Unwrap returns Err.
func (e *StoreError) Unwrap() error { return e.Err }

// Errors of a client, for what a server answers.
var (
	// ErrPending says that there is no reply yet (300).
	ErrPending = errors.New("titanic: no reply yet")
	// ErrUnknown says that nothing is stored under the UUID: it never was, or it was
	// discarded, or its time was over (400).
	ErrUnknown = errors.New("titanic: unknown UUID")
	// ErrInvalid says that the server will never take such a request: the service's
	// name is not printable or begins with "mmi.", or the request has no body or is
	// too large (400).
	ErrInvalid = errors.New("titanic: request is invalid or too large")
	// ErrServer says that the server cannot do it now, for example because its
	// store or its disk is full (500). Try again later. After Submit, the request can
	// have been stored all the same, without its UUID being known.
	ErrServer = errors.New("titanic: server cannot do it now")
	// ErrProtocol says that the answer is not one of RFC 9.
	ErrProtocol = errors.New("titanic: unexpected answer")
)

// Codes of a RefusedError that are the server's own. Others are the worker's.
const (
	CodeDamaged  = 701 // the stored request is damaged, and was not executed
	CodeTooLarge = 702 // the reply is larger than Options.MaxReplyBytes, or has more than MaxFrames
)

// A RefusedError says that the service was asked and did not do the request. This
// is final: the request is not tried again. It is stored, as a reply is.
type RefusedError struct {
	Code int // the worker's, see majordomo.Error
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("titanic: request was refused: %d %s", e.Code, e.Text)
}

func (e *RefusedError) frames() [][]byte {
	return [][]byte{strconv.AppendInt(nil, int64(e.Code), 10), []byte(e.Text)}
}

// What the store answers beside these. The server turns it into a status.
var (
	errFull = errors.New("titanic: store or disk full")
	errGone = errors.New("titanic: nothing is stored under the UUID")
)
