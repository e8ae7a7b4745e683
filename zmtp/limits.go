package zmtp

import "math"

// Default limits, in force where a field of [Limits] is zero.
const (
	// DefaultMaxMessage is the largest message in wire bytes: 256 MiB.
	DefaultMaxMessage = 256 << 20
	// DefaultMaxFrames is the largest number of frames of one message.
	DefaultMaxFrames = 65536
	// DefaultMaxCommand is the largest body of a command: 64 KiB. It bounds
	// the READY of a handshake too.
	DefaultMaxCommand = 64 << 10
)

// Limits bounds what a peer may send. The zero value means the defaults. A
// frame that goes beyond a limit is refused as soon as its header is known,
// with an error that Is [ErrTooLarge]; the stream cannot be resumed after it.
type Limits struct {
	// MaxMessage bounds the wire bytes, headers included, of a whole
	// message. 0 is DefaultMaxMessage, below 0 none.
	MaxMessage int64
	// MaxFrames bounds the number of frames of a message. 0 is
	// DefaultMaxFrames, below 0 none.
	MaxFrames int
	// MaxCommand bounds the body bytes, name included, of a command. 0 is
	// DefaultMaxCommand, below 0 none.
	MaxCommand int
}

// Bounds on the work of moving commands in front of the message in whose
// middle they came (see Decoder.Next). A peer that sends a long partial
// message and then a stream of tiny commands would otherwise have the whole
// part moved once for every few bytes it sends. With these bounds the bytes
// moved stay proportional to the bytes received: the worst ratio, from either
// bound, is about rotationFactor. An honest peer sends a heartbeat a second or
// so, and between two frames only: it would have to take four minutes over one
// message to come near.
const (
	// rotationFactor bounds the bytes moved by those received since the
	// message began.
	rotationFactor = 128
	// rotationFree bytes may be moved in every message besides.
	rotationFree = 256 << 10
)

// bounds is Limits with the defaults put in and no limit as the largest int.
type bounds struct {
	message, frames, command int
}

func (l Limits) bounds() bounds {
	message := bound(l.MaxMessage, DefaultMaxMessage)
	return bounds{
		message: message,
		frames:  bound(int64(l.MaxFrames), DefaultMaxFrames),
		command: bound(int64(l.MaxCommand), DefaultMaxCommand),
	}
}

// bound returns the limit to enforce for a configured one.
func bound(limit int64, standard int) int {
	switch {
	case limit == 0:
		return standard
	case limit < 0 || limit > math.MaxInt:
		return math.MaxInt
	}
	return int(limit)
}
