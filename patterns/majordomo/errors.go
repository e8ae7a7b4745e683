package majordomo

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"clustermap/internal/closed"
	"clustermap/internal/option"
	"clustermap/internal/visible"
	"clustermap/zmtp"
)

var (
	// ErrClosed is returned by the methods of a closed broker, worker or client. It
	// matches net.ErrClosed (errors.Is).
	ErrClosed = closed.Error("majordomo: closed")

	// ErrService is returned for an invalid name of a service: it is empty or has
	// more than MaxServiceName bytes.
	ErrService = errors.New("majordomo: the name of a service must have 1 to 255 bytes")

	// ErrReserved is returned by NewWorker for a name that begins with "mmi.": the
	// broker implements those services (RFC 8).
	ErrReserved = errors.New("majordomo: names that begin with \"mmi.\" are reserved for the broker")

	// ErrNoReply is returned if no attempt of a request had a reply: the broker did
	// not reply in time, or the connection was lost. The request may have been
	// executed. It matches os.ErrDeadlineExceeded (errors.Is).
	ErrNoReply = fmt.Errorf("majordomo: no reply: %w", os.ErrDeadlineExceeded)

	// ErrPartial is returned if the connection was lost after a part of the reply
	// was delivered, so the request was not repeated.
	ErrPartial = errors.New("majordomo: the rest of a partial reply was lost")

	// ErrProtocol is returned for an unexpected reply of the broker's management
	// services.
	ErrProtocol = errors.New("majordomo: unexpected reply of the broker")

	// ErrTooLarge is returned for a partial reply that exceeds
	// ClientOptions.MaxReply.
	ErrTooLarge = errors.New("majordomo: reply is larger than MaxReply")

	// ErrNotPartial is returned by Partial in version 0.1, and after the handler has
	// returned.
	ErrNotPartial = errors.New("majordomo: no partial reply is possible here")
)

// The errors that a broker reports to clients of this package. Every *Error with the
// same code matches them (errors.Is).
var (
	// ErrNoService means that the broker has no room for another service (404).
	ErrNoService = &Error{Code: codeNoService, Text: "no such service"}
	// ErrWorkerLost means that BrokerOptions.MaxDeliveries workers were lost while
	// they executed the request, or one after a part of the reply (502).
	ErrWorkerLost = &Error{Code: codeWorkerLost, Text: "worker lost"}
	// ErrQueueFull means that too many requests wait (503).
	ErrQueueFull = &Error{Code: codeQueueFull, Text: "too many requests wait"}
	// ErrExpired means that the request waited for BrokerOptions.Expiry (504).
	ErrExpired = &Error{Code: codeExpired, Text: "request expired"}
)

// Codes of an Error.
const (
	// CodeFailed is the code for a Handler's error that is not an *Error.
	CodeFailed = 500

	codeNoService  = 404
	codeWorkerLost = 502
	codeQueueFull  = 503
	codeExpired    = 504
)

// Error is an error reply of a worker, or of the broker: ErrNoService, ErrWorkerLost,
// ErrQueueFull, ErrExpired. A Handler returns one to choose code and text; it should not
// use the broker's codes.
//
// It is sent as a reply of three frames: MDP-ERROR, the code in three digits, and up to
// 4096 bytes of text. MDP has no errors; clients of other implementations get these
// frames.
type Error struct {
	Code int // 100 to 999
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("majordomo: error %d: %s", e.Code, visible.String(e.Text))
}

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// errorMark is the first frame of a reply that is an error.
const errorMark = "MDP-ERROR"

// frames returns the error as the body of a reply.
func (e *Error) frames() [][]byte {
	code := e.Code
	if code < 100 || code > 999 {
		code = CodeFailed
	}
	return [][]byte{[]byte(errorMark), strconv.AppendInt(nil, int64(code), 10), []byte(e.Text[:min(len(e.Text), maxErrorText)])}
}

// wire returns the error as the body of a reply in wire form.
func (e *Error) wire() []byte { return zmtp.AppendMessage(nil, e.frames()...) }

// asError returns the error in the body of a reply, or nil.
func asError(body [][]byte) *Error {
	if len(body) != 3 || string(body[0]) != errorMark || len(body[1]) != 3 {
		return nil
	}
	code, err := strconv.ParseUint(string(body[1]), 10, 16)
	if err != nil || code < 100 {
		return nil
	}
	return &Error{Code: int(code), Text: string(body[2])}
}

// errorOf returns the error reply for an error of a handler.
func errorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeFailed, Text: err.Error()}
}

// NoBrokerError reports that a call has ended before there was a connection to the broker, or,
// for a worker, before the broker has accepted it. It
// wraps both of its errors, so errors.Is(err, context.DeadlineExceeded) works, and
// errors.Is(err, syscall.ECONNREFUSED).
type NoBrokerError struct {
	Broker string // endpoint
	Err    error  // of the context
	Why    error  // why the last attempt failed, or has not succeeded yet; nil if that is unknown
}

func (e *NoBrokerError) Error() string {
	text := fmt.Sprintf("majordomo: no broker at %s: %v", e.Broker, e.Err)
	if e.Why != nil {
		text += ": " + e.Why.Error()
	}
	return text
}

// MarshalText returns the text of Error.
func (e *NoBrokerError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Unwrap returns Err and Why.
func (e *NoBrokerError) Unwrap() []error {
	if e.Why == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Why}
}

// OptionError describes one invalid field of the options. Constructors report all
// invalid fields at once, joined by errors.Join.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error
