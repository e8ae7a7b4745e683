package majordomo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"clustermap/zmtp"
)

var (
	// ErrClosed is returned by the methods of a broker, worker or client that was
	// closed. It Is net.ErrClosed.
	ErrClosed = fmt.Errorf("majordomo: closed: %w", net.ErrClosed)

	// ErrService is returned for a name that no service can have: an empty one, or
	// one of more than MaxServiceName bytes.
	ErrService = errors.New("majordomo: a service's name has 1 to 255 bytes")

	// ErrReserved is returned by NewWorker for a name that begins with "mmi.": a broker
	// does those services itself (RFC 8).
	ErrReserved = errors.New("majordomo: services that begin with \"mmi.\" are the broker's own")

	// ErrNoReply is returned by a client's requests when all attempts were without
	// a reply: the broker did not reply in time, or the connection was lost each
	// time. It Is os.ErrDeadlineExceeded. The request may have been done.
	ErrNoReply = fmt.Errorf("majordomo: no reply: %w", os.ErrDeadlineExceeded)

	// ErrPartial is returned by a client's requests when the connection was lost
	// after a part of the reply had been handed on, so that the request cannot
	// be repeated in silence.
	ErrPartial = errors.New("majordomo: the rest of a partial reply was lost")

	// ErrProtocol is returned for a reply of the broker that is not what was asked
	// for.
	ErrProtocol = errors.New("majordomo: unexpected reply of the broker")

	// ErrTooLarge is returned for a partial reply beyond ClientOptions.MaxReply.
	ErrTooLarge = errors.New("majordomo: reply is larger than MaxReply")

	// ErrNotPartial is returned by Partial where no part of a reply can be sent: in
	// version 0.1, and when the request is not being handled any more.
	ErrNotPartial = errors.New("majordomo: no partial reply is possible here")
)

// What a broker tells clients of this package that it does not do. An *Error with
// the code of one Is it.
var (
	// ErrNoService: the broker has as many services as it may have, and none of
	// this name (404).
	ErrNoService = &Error{Code: codeNoService, Text: "no such service"}
	// ErrWorkerLost: the workers that got the request ended or fell silent, as
	// often as the broker repeats it (502).
	ErrWorkerLost = &Error{Code: codeWorkerLost, Text: "worker lost"}
	// ErrQueueFull: too many requests wait (503).
	ErrQueueFull = &Error{Code: codeQueueFull, Text: "too many requests wait"}
	// ErrExpired: no worker took the request in time (504).
	ErrExpired = &Error{Code: codeExpired, Text: "request expired"}
)

// Codes of an Error.
const (
	// CodeFailed is that of an error of a Handler that is no *Error.
	CodeFailed = 500

	codeNoService  = 404
	codeWorkerLost = 502
	codeQueueFull  = 503
	codeExpired    = 504
)

// Error is the reply of a worker that could not do what was asked for, or of the
// broker: ErrNoService, ErrWorkerLost, ErrQueueFull, ErrExpired. A Handler that
// returns one decides on code and text; the codes of the broker are best left to it.
//
// It travels as a reply of three frames: errorMark, the code in three digits, and
// the text. MDP itself has no errors; clients of other makes see these frames.
type Error struct {
	Code int // 100 to 999
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("majordomo: error %d: %s", e.Code, e.Text) }

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// errorMark is the first frame of a reply that is an error.
const errorMark = "MDP-ERROR"

// maxErrorText bounds the text of an error, in bytes.
const maxErrorText = 4096

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

// asError returns the error that the body of a reply is, or nil.
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

// errorOf returns what a worker replies when its handler has failed.
func errorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeFailed, Text: err.Error()}
}

// OptionError is one thing that is wrong with an options struct. The constructors
// return all of them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "majordomo: option " + e.Field + " " + e.Reason }
