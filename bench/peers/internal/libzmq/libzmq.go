// Package libzmq measures libzmq through its plain calls: the loops around
// zmq_send and zmq_recv are in C, so that the figures are libzmq's and do not include
// calls from Go to C.
package libzmq

/*
#cgo pkg-config: libzmq
#include <errno.h>
#include <stdlib.h>
#include <zmq.h>
#include "loops.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Type is a socket type.
type Type C.int

// Socket types.
const (
	PAIR Type = C.ZMQ_PAIR
	SUB  Type = C.ZMQ_SUB
	REQ  Type = C.ZMQ_REQ
	REP  Type = C.ZMQ_REP
	PULL Type = C.ZMQ_PULL
	PUSH Type = C.ZMQ_PUSH
	XPUB Type = C.ZMQ_XPUB
)

// Context is a libzmq context with one I/O thread.
type Context struct{ p unsafe.Pointer }

// NewContext makes a context. It lives as long as the process.
func NewContext() Context { return Context{C.zmq_ctx_new()} }

// Socket is a libzmq socket. Like all of them it is for one thread at a time.
type Socket struct{ p unsafe.Pointer }

// Error is an errno of libzmq.
type Error struct {
	Call  string
	Errno int
}

func (e *Error) Error() string {
	return fmt.Sprintf("libzmq: %s: %s", e.Call, C.GoString(C.zmq_strerror(C.int(e.Errno))))
}

func failed(call string, rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return &Error{call, int(C.zmq_errno())}
}

// result is the error of a loop, which returns an errno.
func result(call string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	return &Error{call, int(errno)}
}

// Socket makes a socket. The thread that is wired to the calling goroutine by
// the caller, if any, does not matter until it is used.
func (c Context) Socket(t Type) (Socket, error) {
	p := C.zmq_socket(c.p, C.int(t))
	if p == nil {
		return Socket{}, failed("zmq_socket", -1)
	}
	return Socket{p}, nil
}

// setInt sets an option that is an int.
func (s Socket) setInt(option, value int) error {
	v := C.int(value)
	return failed("zmq_setsockopt", C.zmq_setsockopt(s.p, C.int(option), unsafe.Pointer(&v), C.size_t(unsafe.Sizeof(v))))
}

// setString sets an option that is a string or a number of bytes.
func (s Socket) setString(option int, value string) error {
	v := C.CString(value)
	defer C.free(unsafe.Pointer(v))
	return failed("zmq_setsockopt", C.zmq_setsockopt(s.p, C.int(option), unsafe.Pointer(v), C.size_t(len(value))))
}

// Subscribe subscribes to a topic.
func (s Socket) Subscribe(topic string) error { return s.setString(C.ZMQ_SUBSCRIBE, topic) }

// HighWaterMark sets both high-water marks, in messages.
func (s Socket) HighWaterMark(messages int) error {
	if err := s.setInt(C.ZMQ_SNDHWM, messages); err != nil {
		return err
	}
	return s.setInt(C.ZMQ_RCVHWM, messages)
}

// NoDrop makes an XPUB wait for its subscribers instead of dropping, and report every
// subscription.
func (s Socket) NoDrop() error {
	if err := s.setInt(C.ZMQ_XPUB_NODROP, 1); err != nil {
		return err
	}
	return s.setInt(C.ZMQ_XPUB_VERBOSE, 1)
}

// CurveServer makes the socket CURVE's server. The key is in Z85.
func (s Socket) CurveServer(secret string) error {
	if err := s.setInt(C.ZMQ_CURVE_SERVER, 1); err != nil {
		return err
	}
	return s.setString(C.ZMQ_CURVE_SECRETKEY, secret)
}

// CurveClient makes the socket a client of the server with that public key.
// All keys are in Z85.
func (s Socket) CurveClient(server, public, secret string) error {
	if err := s.setString(C.ZMQ_CURVE_SERVERKEY, server); err != nil {
		return err
	}
	if err := s.setString(C.ZMQ_CURVE_PUBLICKEY, public); err != nil {
		return err
	}
	return s.setString(C.ZMQ_CURVE_SECRETKEY, secret)
}

// CurveKeys makes a pair of keys in Z85.
func CurveKeys() (public, secret string, err error) {
	var p, s [41]C.char
	if err := failed("zmq_curve_keypair", C.zmq_curve_keypair(&p[0], &s[0])); err != nil {
		return "", "", err
	}
	return C.GoString(&p[0]), C.GoString(&s[0]), nil
}

// Bind binds and returns the endpoint that came of it.
func (s Socket) Bind(endpoint string) (string, error) {
	e := C.CString(endpoint)
	defer C.free(unsafe.Pointer(e))
	if err := failed("zmq_bind", C.zmq_bind(s.p, e)); err != nil {
		return "", err
	}
	var last [256]C.char
	size := C.size_t(len(last))
	err := failed("zmq_getsockopt", C.zmq_getsockopt(s.p, C.ZMQ_LAST_ENDPOINT, unsafe.Pointer(&last[0]), &size))
	return C.GoString(&last[0]), err
}

// Connect connects.
func (s Socket) Connect(endpoint string) error {
	e := C.CString(endpoint)
	defer C.free(unsafe.Pointer(e))
	return failed("zmq_connect", C.zmq_connect(s.p, e))
}

// Await receives n messages of at most 255 bytes and throws them away.
func (s Socket) Await(n int) error {
	runtime.LockOSThread() // errno, asked for in a call of its own, is the thread's
	defer runtime.UnlockOSThread()
	var bytes [255]byte
	for i := 0; i < n; {
		rc := C.zmq_recv(s.p, unsafe.Pointer(&bytes[0]), C.size_t(len(bytes)), 0)
		if err := failed("zmq_recv", rc); err == nil {
			i++
		} else if e := err.(*Error); e.Errno != C.EINTR {
			return err
		}
	}
	return nil
}

func pin(bytes []byte) (unsafe.Pointer, *runtime.Pinner) {
	p := new(runtime.Pinner)
	if len(bytes) == 0 {
		return nil, p
	}
	p.Pin(&bytes[0])
	return unsafe.Pointer(&bytes[0]), p
}

// SendLoop sends the same message until that fails.
func (s Socket) SendLoop(message []byte) error {
	runtime.LockOSThread()
	m, p := pin(message)
	defer p.Unpin()
	return result("zmq_send", C.loop_send(s.p, m, C.size_t(len(message))))
}

// RecvLoop waits for a message, receives for warm, and then counts the messages that
// arrive during d and measures how long that was. It looks at the clock every stride
// messages.
func (s Socket) RecvLoop(size int, warm, d time.Duration, stride int) (count int64, elapsed time.Duration, err error) {
	runtime.LockOSThread()
	var n, t C.int64_t
	rc := C.loop_recv(s.p, C.size_t(size), C.int64_t(warm), C.int64_t(d), C.int(stride), &n, &t)
	return int64(n), time.Duration(t), result("zmq_recv", rc)
}

// RequestLoop sends requests, each after the reply to the one before, for warm,
// and then counts replies during d.
func (s Socket) RequestLoop(message []byte, warm, d time.Duration) (count int64, elapsed time.Duration, err error) {
	runtime.LockOSThread()
	m, p := pin(message)
	defer p.Unpin()
	var n, t C.int64_t
	rc := C.loop_request(s.p, m, C.size_t(len(message)), C.int64_t(warm), C.int64_t(d), &n, &t)
	return int64(n), time.Duration(t), result("request", rc)
}

// ReplyLoop sends every request, of size bytes, back until that fails.
func (s Socket) ReplyLoop(size int) error {
	runtime.LockOSThread()
	return result("reply", C.loop_reply(s.p, C.size_t(size)))
}
