package libzmq

/*
#include <zmq.h>

// drain receives until that fails.
static void drain(void *socket)
{
	zmq_msg_t m;

	zmq_msg_init(&m);
	while (zmq_msg_recv(&m, socket, 0) >= 0 || zmq_errno() == EINTR)
		;
	zmq_msg_close(&m);
}
*/
import "C"

import "runtime"

// XSUB is the socket type of a forwarder's frontend.
const XSUB Type = C.ZMQ_XSUB

// Proxy is zmq_proxy: it forwards between two sockets until their context ends, and
// sends copies to a third one if that is not the zero Socket.
func Proxy(frontend, backend, capture Socket) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.zmq_proxy(frontend.p, backend.p, capture.p)
}

// Drain receives messages and throws them away until the context ends.
func (s Socket) Drain() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.drain(s.p)
}

// Shutdown ends the context: calls on its sockets return. The sockets themselves are left
// behind, so it waits for nothing.
func (c Context) Shutdown() { C.zmq_ctx_shutdown(c.p) }
