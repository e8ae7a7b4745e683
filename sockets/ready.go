package sockets

import "clustermap/internal/engine"

// Events returns the events for which the socket is ready now (ZMQ_EVENTS): with
// PollIn a receive call would not wait, and with PollOut a send call would not.
// It does not wait. A closed socket has both, because calls on it return
// ErrClosed at once.
//
// Another goroutine may change this before the caller acts on it, so use
// TryRecv and TrySend. See [Poller] and OnReady for waiting until a socket is
// ready.
func (s *socket) Events() PollEvents {
	s.core.In.Poll() // of a connection that receive calls read themselves
	return PollEvents(s.core.Poll(engine.PollIn | engine.PollOut))
}

// OnReady calls f whenever the socket becomes ready for one of the given events,
// with those for which it is ready. It connects a socket to an event loop that
// is not made of goroutines: f tells the loop to look at the socket. If the
// socket is ready already, f is called at once.
//
// The hook is edge-triggered. f is called at least once after each change from
// not ready to ready, and usually once. It is not called again for messages
// that were left in the queue. So after a call with PollIn, receive with TryRecv
// until it returns ErrWouldBlock, and after one with PollOut send, if there are messages
// to send, until TrySend does.
//
// The calls come one at a time, from a goroutine that belongs to the hook, with
// no lock held. f may use the socket, but it should return soon: while it runs
// there are no other calls, and changes in the meantime lead to one call
// afterwards. f must not close the socket, because Close waits until f has
// returned. The last call, with all of the given events, says that the socket is
// closed.
//
// The function stop removes the hook. It may be called several times, and from
// f. It does not wait: a call of f that has already begun may go on. A socket
// may have several hooks. Each costs one goroutine, and a wake-up of it per
// batch of messages at most. If the socket is closed, the error is ErrClosed.
func (s *socket) OnReady(events PollEvents, f func(PollEvents)) (stop func(), err error) {
	return s.core.OnReady(engine.Events(events), func(e engine.Events) { f(PollEvents(e)) })
}
