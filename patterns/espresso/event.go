package espresso

import (
	"time"

	"clustermap/zmtp"
)

// Direction says which side of a tap something comes from.
type Direction uint8

// The directions. A message goes on to the other side.
const (
	FromFrontend Direction = 1 + iota
	FromBackend
)

// String returns "frontend" or "backend".
func (d Direction) String() string {
	switch d {
	case FromFrontend:
		return "frontend"
	case FromBackend:
		return "backend"
	}
	return "neither"
}

// Op is what happened.
type Op uint8

// The kinds of events.
const (
	OpMessage     Op = 1 + iota // a message
	OpSubscribe                 // a topic is subscribed to, upstream
	OpUnsubscribe               // a topic is unsubscribed from
	OpLost                      // messages were forwarded that the observer was too slow for
)

// String returns "message", "subscribe", "unsubscribe" or "lost".
func (o Op) String() string {
	switch o {
	case OpMessage:
		return "message"
	case OpSubscribe:
		return "subscribe"
	case OpUnsubscribe:
		return "unsubscribe"
	case OpLost:
		return "lost"
	}
	return "unknown"
}

// Event is one thing that a tap saw. Frames are views, valid until the next event is
// asked for.
type Event struct {
	// Time is when the tap received the message: the clock of the machine when the
	// tap began, and a monotonic clock since. Times never decrease.
	Time time.Time

	From Direction
	Op   Op

	// Frames are all frames of the message. Those of a ROUTER begin with the
	// identity of the peer.
	Frames [][]byte

	// Envelope is how many of Frames lead the way between clients and services:
	// identities, and the empty frame behind them. The others are the body. It is 0
	// in a flow without a ROUTER.
	Envelope int

	// Lost and LostBytes count the messages that were lost, with OpLost, and their
	// bytes in wire form.
	Lost, LostBytes uint64
}

// Topic returns what is subscribed to, or the first frame of the body, nil if there is
// none.
func (e *Event) Topic() []byte {
	switch {
	case e.Op == OpSubscribe, e.Op == OpUnsubscribe:
		return e.Frames[0][1:]
	case e.Op == OpMessage && e.Envelope < len(e.Frames):
		return e.Frames[e.Envelope]
	}
	return nil
}

// Size returns the bytes of all frames together.
func (e *Event) Size() int {
	n := 0
	for _, f := range e.Frames {
		n += len(f)
	}
	return n
}

// Ends are the types of a tap's two sockets. They say what a message means.
type Ends struct{ Frontend, Backend zmtp.SocketType }

// interpret fills in Op and Envelope from From and Frames, of which there is one at
// least.
func (s Ends) interpret(e *Event) {
	e.Op, e.Envelope = s.op(e.From, e.Frames[0]), 0
	from, to := s.Frontend, s.Backend
	if e.From == FromBackend {
		from, to = to, from
	}
	switch from {
	case zmtp.ROUTER, zmtp.DEALER:
		for i, f := range e.Frames {
			if len(f) == 0 {
				e.Envelope = i + 1
				return
			}
		}
		if from == zmtp.ROUTER || to == zmtp.ROUTER {
			e.Envelope = 1
		}
	}
}

// op returns what a message is, from the side that it comes from and its first frame.
func (s Ends) op(from Direction, first []byte) Op {
	socket := s.Frontend
	if from == FromBackend {
		socket = s.Backend
	}
	if socket == zmtp.XPUB && len(first) > 0 && first[0] <= 1 {
		return OpUnsubscribe - Op(first[0])
	}
	return OpMessage
}

// Filter says which events an observer gets. The zero Filter lets all pass.
type Filter struct {
	// Topics, if there are any, let events pass whose topic begins with one of them.
	Topics []string

	// From, if not 0, lets events of one direction pass.
	From Direction
}

// Pass says whether an event passes. OpLost always does.
func (f *Filter) Pass(e *Event) bool {
	if e.Op == OpLost {
		return true
	}
	if f.From != 0 && f.From != e.From {
		return false
	}
	if len(f.Topics) == 0 {
		return true
	}
	topic := e.Topic()
	for _, prefix := range f.Topics {
		if len(topic) >= len(prefix) && string(topic[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}
