package engine

import (
	"math"
	"sync"

	"clustermap/internal/queue"
)

// Events is a set of events of a socket; see sockets.PollEvents.
type Events uint8

const (
	PollIn  Events = 1 << iota // a receive call would not wait
	PollOut                    // a send call would not wait
	PollEnd                    // the socket is closed
)

// Poll returns the events, among the given ones, for which the socket is ready.
func (s *Socket) Poll(events Events) Events {
	if s.Open() != nil {
		return events
	}
	var ready Events
	if events&PollIn != 0 && s.pattern.Receivable() {
		ready |= PollIn
	}
	if events&PollOut != 0 && s.pattern.Sendable() {
		ready |= PollOut
	}
	return ready
}

// OnReady calls f whenever the socket becomes ready for one of the given events; see
// sockets.Socket.
func (s *Socket) OnReady(events Events, f func(Events)) (stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, queue.ErrClosed
	}
	h := &readyHook{socket: s, events: events, call: f, token: make(chan struct{}, 1), stopped: make(chan struct{})}
	s.In.Watch(h.token)
	s.wg.Go(h.run)
	return sync.OnceFunc(func() { close(h.stopped) }), nil
}

// readyHook is one hook of OnReady.
type readyHook struct {
	socket  *Socket
	events  Events
	call    func(Events)
	token   chan struct{} // there may be a change; capacity 1
	stopped chan struct{}

	dry, others uint64 // marks of the inbox when the hook was last called with PollIn, and last checked
}

func (h *readyHook) run() {
	s := h.socket
	defer s.In.Unwatch(h.token)
	h.dry, h.others = math.MaxUint64, math.MaxUint64
	for {
		ended := s.Open() != nil
		edges := h.edges()
		if ended {
			edges = h.events
		}
		if edges != 0 && !isClosed(h.stopped) {
			h.call(edges)
		}
		if ended {
			return
		}
		select {
		case <-h.token:
		case <-h.stopped:
			return
		}
	}
}

// edges returns the events for which the socket is ready and may not have been
// ready since the last call. A change is found even if the hook has slept
// through it: an inbox that has run out of messages counts that, and a send
// call that would have waited is followed by a change that counts.
func (h *readyHook) edges() Events {
	dry, others := h.socket.In.Marks() // before poll: a change after it causes another token
	edges := h.socket.Poll(h.events)
	if others == h.others {
		edges &^= PollOut
		if dry == h.dry {
			edges &^= PollIn
		}
	}
	h.others = others
	if edges&PollIn != 0 {
		h.dry = dry
	}
	return edges
}
