package fanout

// A subscriber sends its publisher subscriptions and unsubscriptions and, if it is
// an XSUB, application messages. ZMTP 3.1 has commands for the first two. In older
// versions, and if they come from the application of an XSUB, they are frames of a
// message that begin with byte 1 or 0.

// FrameKind is the kind of a frame from a subscriber.
type FrameKind uint8

const (
	UserFrame      FrameKind = iota
	SubscribeFrame           // 01 topic
	CancelFrame              // 00 topic
)

// Frames determines the kinds of the frames of one message, one after
// another. Any frame can be a subscription, even after application frames. With
// FirstOnly, a message whose first frame is not a subscription contains none.
type Frames struct {
	FirstOnly    bool
	later, plain bool // the frame is not the first; the rest is application frames
}

// Kind returns the kind of the next frame.
func (u *Frames) Kind(body []byte) FrameKind {
	kind := UserFrame
	if !u.plain && len(body) > 0 {
		switch body[0] {
		case 0:
			kind = CancelFrame
		case 1:
			kind = SubscribeFrame
		}
	}
	if !u.later {
		u.later, u.plain = true, u.FirstOnly && kind == UserFrame
	}
	return kind
}
