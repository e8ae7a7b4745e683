package espresso

import (
	"slices"
	"time"

	"clustermap/internal/text"
	"clustermap/zmtp"
)

// Direction is the side of a tap from which a message comes.
type Direction uint8

// The directions.
const (
	DirectionFromFrontend Direction = 1 + iota
	DirectionFromBackend
)

// String returns "frontend" or "backend".
func (d Direction) String() string {
	return text.Of(d, "Direction", "neither", "frontend", "backend")
}

// MarshalText returns the text of String.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Op is the kind of an event.
type Op uint8

// The kinds of events.
const (
	OpMessage     Op = 1 + iota // a message
	OpSubscribe                 // a subscription
	OpUnsubscribe               // an unsubscription
	OpLost                      // messages that the observer lost because it was too slow
)

// String returns "message", "subscribe", "unsubscribe" or "lost".
func (o Op) String() string {
	return text.Of(o, "Op", "unknown", "message", "subscribe", "unsubscribe", "lost")
}

// MarshalText returns the text of String.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Event is a message, a subscription, or a loss. Frames are valid until the next event is
// read.
type Event struct {
	// Time is when the tap received the message: the wall clock when the tap was
	// made, and a monotonic clock since. Times never decrease.
	Time time.Time

	From Direction
	Op   Op

	// Frames are all frames of the message. A message from a ROUTER begins with the
	// identity of the peer.
	Frames [][]byte

	// Envelope is the number of frames before the body: identities, and the empty
	// frame after them. It is 0 for publish-subscribe and pipelines.
	Envelope int

	// Lost and LostBytes are, for OpLost, the number of lost messages and their bytes
	// in wire form.
	Lost, LostBytes uint64
}

// Topic returns the topic of a subscription, or the first frame of the body of a
// message, or nil if there is none.
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

// Ends has the types of a tap's two sockets.
type Ends struct{ Frontend, Backend zmtp.SocketType }

// interpret sets Op and Envelope according to From and Frames, which must not be empty.
func (s Ends) interpret(e *Event) {
	e.Op, e.Envelope = s.op(e.From, e.Frames[0]), 0
	from, to := s.Frontend, s.Backend
	if e.From == DirectionFromBackend {
		from, to = to, from
	}
	switch from {
	case zmtp.TypeRouter, zmtp.TypeDealer:
		for i, f := range e.Frames {
			if len(f) == 0 {
				e.Envelope = i + 1
				return
			}
		}
		if from == zmtp.TypeRouter || to == zmtp.TypeRouter {
			e.Envelope = 1
		}
	}
}

// op returns the kind of a message with the given direction and first frame.
func (s Ends) op(from Direction, first []byte) Op {
	socket := s.Frontend
	if from == DirectionFromBackend {
		socket = s.Backend
	}
	if socket == zmtp.TypeXPub && len(first) > 0 && first[0] <= 1 {
		return OpUnsubscribe - Op(first[0])
	}
	return OpMessage
}

// Filter selects the events of an observer. The zero Filter selects all.
type Filter struct {
	// Topics selects events whose topic begins with one of them. None means all.
	Topics []string

	// From selects events of one direction. 0 means both.
	From Direction
}

// Pass reports whether f selects e. It always selects OpLost.
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
	return slices.ContainsFunc(f.Topics, func(prefix string) bool {
		return len(topic) >= len(prefix) && string(topic[:len(prefix)]) == prefix
	})
}
