package zmtp

import (
	"math"
	"time"
)

// Default values of the fields of [Limits].
const (
	// DefaultMaxMessage is the default of Limits.MaxMessage: 256 MiB.
	DefaultMaxMessage = 256 << 20
	// DefaultMaxFrames is the default of Limits.MaxFrames.
	DefaultMaxFrames = 65536
	// DefaultMaxCommand is the default of Limits.MaxCommand: 64 KiB.
	DefaultMaxCommand = 64 << 10
)

// Limits restricts the frames and messages of a peer. The zero value selects the
// defaults. A frame that exceeds a limit is refused as soon as its header has arrived,
// with an error that matches [ErrTooLarge]. The stream cannot be decoded further after
// that.
type Limits struct {
	// MaxMessage is the maximum size of a message on the wire, in bytes,
	// including frame headers. If zero, it is DefaultMaxMessage; if negative,
	// there is no limit.
	MaxMessage int64
	// MaxFrames is the maximum number of frames of a message. If zero, it is
	// DefaultMaxFrames; if negative, there is no limit.
	MaxFrames int
	// MaxCommand is the maximum size of the body of a command, in bytes,
	// including its name. It also applies to the handshake. If zero, it is
	// DefaultMaxCommand; if negative, there is no limit.
	MaxCommand int
}

// Limits on the work of moving commands in front of a partial message (see
// Decoder.Next). Without them, a peer that sends a long partial message and then a
// stream of tiny commands would make us move the whole message once for every few
// bytes. With them, we move at most about rotationFactor bytes for each byte
// received. A normal peer sends a heartbeat about once a second, so it would have
// to spend two minutes on one message to reach the limit.
const (
	// rotationFactor is the maximum number of bytes moved for each byte
	// received since the message began.
	rotationFactor = 128
	// rotationFree is how many bytes may be moved in addition, per message.
	rotationFree = 256 << 10
)

// bounds is Limits with the defaults filled in, and with the largest int for no
// limit.
type bounds struct {
	message, frames, command int
}

func (l Limits) bounds() bounds {
	return bounds{
		message: bound(l.MaxMessage, DefaultMaxMessage),
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

// MaxPingContext is the maximum size of the context of a PING, in bytes (RFC
// 37, section "Connection Heartbeating").
const MaxPingContext = 16

// maxHello is the maximum size of the first command that a server accepts from
// a client. HELLO has at most 518 bytes in PLAIN and 200 in CURVE. The client
// has not proved anything yet, so the server buffers only little for it.
const maxHello = 1 << 10

// CookieLifetime is the maximum time for which a CURVE server accepts a cookie.
// It refuses an INITIATE that arrives later than that after WELCOME (RFC 26).
const CookieLifetime = 60 * time.Second
