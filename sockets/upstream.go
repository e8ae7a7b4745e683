package sockets

import (
	"encoding/binary"

	"clustermap/zmtp"
)

// What a subscriber says to its publisher is subscriptions, their ends, and
// with XSUB messages of the application's own. ZMTP 3.1 has commands for the
// first two; before, and from XSUB applications still, they are frames of a
// message that begin with 1 or 0.

// frameKind is what a frame from a subscriber is.
type frameKind uint8

const (
	userFrame      frameKind = iota
	subscribeFrame           // 01 topic
	cancelFrame              // 00 topic
)

// upstream tells the kinds of the frames of one message, one after the other.
// Any frame can be a subscription, also behind frames of the application's own;
// with firstOnly, a message that does not begin with a subscription has none.
type upstream struct {
	firstOnly    bool
	later, plain bool // not the first frame; the rest is the application's
}

func (u *upstream) kind(body []byte) frameKind {
	kind := userFrame
	if !u.plain && len(body) > 0 {
		switch body[0] {
		case 0:
			kind = cancelFrame
		case 1:
			kind = subscribeFrame
		}
	}
	if !u.later {
		u.later, u.plain = true, u.firstOnly && kind == userFrame
	}
	return kind
}

// subscriptionMessage turns a SUBSCRIBE or CANCEL command, in place, into the
// message that says the same, which is shorter: it returns at which byte of
// the frame that begins. For other commands, and what is no command, it returns
// 0 and changes nothing.
func subscriptionMessage(frame []byte) int {
	c, err := zmtp.ParseCommand(zmtp.CommandBody(frame))
	if err != nil {
		return 0
	}
	var first byte
	switch string(c.Name) {
	case zmtp.CommandSubscribe:
		first = 1
	case zmtp.CommandCancel:
		first = 0
	default:
		return 0
	}
	body := 1 + len(c.Data)
	at := len(frame) - body
	frame[at] = first
	if body <= 255 {
		at -= 2
		frame[at], frame[at+1] = 0, byte(body)
		return at
	}
	at -= 9
	frame[at] = zmtp.FlagLong
	binary.BigEndian.PutUint64(frame[at+1:], uint64(body))
	return at
}
