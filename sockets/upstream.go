package sockets

import "clustermap/zmtp"

// A subscriber sends its publisher subscriptions and unsubscriptions and, if it is
// an XSUB, application messages. ZMTP 3.1 has commands for the first two. In older
// versions, and if they come from the application of an XSUB, they are frames of a
// message that begin with byte 1 or 0.

// frameKind is the kind of a frame from a subscriber.
type frameKind uint8

const (
	userFrame      frameKind = iota
	subscribeFrame           // 01 topic
	cancelFrame              // 00 topic
)

// upstream determines the kinds of the frames of one message, one after
// another. Any frame can be a subscription, even after application frames. With
// firstOnly, a message whose first frame is not a subscription contains none.
type upstream struct {
	firstOnly    bool
	later, plain bool // the frame is not the first; the rest is application frames
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

// subscriptionMessage replaces a SUBSCRIBE or CANCEL command, in place, by the
// equivalent message, which is shorter. It returns the offset in frame at which
// the message begins. For anything else it returns 0 and changes nothing.
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
	default:
		return 0
	}
	body := 1 + len(c.Data)
	frame[len(frame)-body] = first
	at := len(frame) - zmtp.FrameSize(body)
	zmtp.AppendHeader(frame[:at], 0, body)
	return at
}
