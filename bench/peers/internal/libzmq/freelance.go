package libzmq

/*
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

// The guide's design of Freelance, model three: ROUTER to ROUTER, the server known by its
// identity.

// take receives one frame. It tries again after a signal.
static int take(zmq_msg_t *m, void *socket)
{
	int n;

	while ((n = zmq_msg_recv(m, socket, 0)) < 0 && zmq_errno() == EINTR)
		;
	return n;
}

// freelance_serve returns requests, and answers pings, until its context ends.
static void freelance_serve(void *socket)
{
	zmq_msg_t id, m;

	zmq_msg_init(&id);
	zmq_msg_init(&m);
	while (take(&id, socket) >= 0 && take(&m, socket) >= 0) {
		int more = zmq_msg_more(&m);

		zmq_msg_send(&id, socket, ZMQ_SNDMORE);
		if (!more && zmq_msg_size(&m) == 4 && memcmp(zmq_msg_data(&m), "PING", 4) == 0) {
			zmq_send(socket, "PONG", 4, 0);
			continue;
		}
		while (more) {
			zmq_msg_send(&m, socket, ZMQ_SNDMORE);
			if (take(&m, socket) < 0)
				return;
			more = zmq_msg_more(&m);
		}
		zmq_msg_send(&m, socket, 0);
	}
}

// freelance_send sends a request with its number, and waits for the connection.
static int freelance_send(void *socket, const char *server, const void *body, size_t size, long number)
{
	char control[24];
	int n = snprintf(control, sizeof control, "%ld", number);

	while (zmq_send(socket, server, strlen(server), ZMQ_SNDMORE) < 0) {
		if (zmq_errno() != EHOSTUNREACH && zmq_errno() != EINTR)
			return zmq_errno();
		usleep(1000);
	}
	if (zmq_send(socket, control, n, ZMQ_SNDMORE) < 0 || zmq_send(socket, body, size, 0) < 0)
		return zmq_errno();
	return 0;
}

// freelance_call makes count requests, window of them at once, and checks that the replies
// have their numbers. It returns 0, libzmq's errno, or -1 for a reply that is wrong.
static int freelance_call(void *socket, const char *server, const void *body, size_t size, int window, long count)
{
	zmq_msg_t m;
	long sent = 0, got = 0;
	int err = 0;

	zmq_msg_init(&m);
	while (err == 0 && got < count) {
		char control[24];
		int n;

		if (sent < count && sent - got < window) {
			err = freelance_send(socket, server, body, size, ++sent);
			continue;
		}
		n = snprintf(control, sizeof control, "%ld", ++got);
		if (take(&m, socket) < 0 || take(&m, socket) < 0)
			err = zmq_errno();
		else if (zmq_msg_size(&m) != (size_t)n || memcmp(zmq_msg_data(&m), control, n) != 0)
			err = -1;
		else if (take(&m, socket) < 0)
			err = zmq_errno();
		else if (zmq_msg_size(&m) != size || zmq_msg_more(&m))
			err = -1;
	}
	zmq_msg_close(&m);
	return err;
}
*/
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

// ROUTER is the socket type of both sides of Freelance.
const ROUTER Type = C.ZMQ_ROUTER

// Identify sets the socket's identity. It must come before Bind.
func (s Socket) Identify(identity string) error { return s.setString(C.ZMQ_ROUTING_ID, identity) }

// Mandatory makes a ROUTER report messages that it cannot route.
func (s Socket) Mandatory() error { return s.setInt(C.ZMQ_ROUTER_MANDATORY, 1) }

// ServeFreelance returns requests until the context ends.
func (s Socket) ServeFreelance() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.freelance_serve(s.p)
}

// errReply is a reply that does not belong to the request.
var errReply = errors.New("libzmq: a reply is not the one that was expected")

// CallFreelance makes count requests of the server with an identity, a given number at
// once.
func (s Socket) CallFreelance(server string, body []byte, window, count int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	name := C.CString(server)
	defer C.free(unsafe.Pointer(name))
	switch n := C.freelance_call(s.p, name, unsafe.Pointer(&body[0]), C.size_t(len(body)), C.int(window), C.long(count)); {
	case n < 0:
		return errReply
	case n > 0:
		return &Error{"freelance_call", int(n)}
	}
	return nil
}
