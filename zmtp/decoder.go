package zmtp

import (
	"math"
	"slices"
)

// Kind is what [Decoder.Next] found.
type Kind uint8

const (
	// NeedMore: the bytes hold no whole message or command.
	NeedMore Kind = iota
	// KindMessage: a whole message, to be taken as Message(b[:n]).
	KindMessage
	// KindCommand: a whole command frame, whose body CommandBody(b[:n])
	// returns.
	KindCommand
)

// Decoder cuts the bytes of one connection, after its handshake, into
// messages and commands. It holds no bytes: they stay in the caller's buffer.
//
// The zero value is ready, with the default limits. A Decoder belongs to one
// goroutine at a time.
type Decoder struct {
	off    int   // bytes of whole frames of a partial message: where the next header is
	frames int   // how many frames these are
	need   int   // what Need returns, 0 if nothing is known
	moved  int64 // bytes moved for commands inside this message
	inside int64 // bytes of those commands
	max    bounds
}

// NewDecoder returns a decoder with the given limits.
func NewDecoder(l Limits) *Decoder {
	return &Decoder{max: l.bounds()}
}

// SetLimits changes the limits, for what has not been looked at yet.
func (d *Decoder) SetLimits(l Limits) { d.max = l.bounds() }

// Reset forgets a partial message and keeps the limits, for use on another
// stream.
func (d *Decoder) Reset() { *d = Decoder{max: d.max} }

// Next looks for one message or command at the start of b, which holds the
// bytes of the stream that have not been consumed yet. With KindMessage or
// KindCommand the caller consumes b[:n]: its next b begins after them. With
// NeedMore, n is 0 and the next b holds the same bytes again and, to make
// progress, more; it may lie at another address. The decoder remembers how far
// it has looked, so feeding it byte by byte costs no more than a constant an
// byte.
//
// A peer may send a command between two frames of a message; libzmq does so
// with heartbeats.
// Such a command is returned first: Next moves it in front of the partial
// message, within b, and the message goes on undisturbed. This is the only
// case in which Next writes to b.
//
// An error is a [*ProtocolError] that Is ErrMalformed or ErrTooLarge. The
// stream cannot be decoded further; Next returns the error again.
func (d *Decoder) Next(b []byte) (kind Kind, n int, err error) {
	// The time a short frame takes is the latency of one chain: load its size,
	// add it, load the next size there. All else runs beside that chain, so
	// there is nothing to gain by fewer checks. One load of both bytes was
	// slower; guessing each size to be that of the message before gained a
	// quarter on messages of one shape and lost as much on others.
	off, frames := d.off, d.frames
	// What is both here and within MaxMessage; anything else is for slow.
	whole := b[:min(len(b), d.max.message)]
	for frames < d.max.frames && uint(off)+1 < uint(len(whole)) {
		flags, size := whole[off], whole[off+1]
		if flags&(FlagLong|FlagCommand) != 0 {
			break
		}
		end := off + shortHeader + int(size)
		if end > len(whole) {
			break
		}
		off = end
		frames++
		if flags&FlagMore == 0 {
			d.endMessage()
			return KindMessage, off, nil
		}
	}
	return d.slow(b, off, frames)
}

// endMessage prepares for the next message.
func (d *Decoder) endMessage() {
	d.off, d.frames, d.need, d.moved, d.inside = 0, 0, 0, 0, 0
}

// slow goes on at off for every case but a short frame that is whole: long
// frames, commands, missing bytes, limits, and the zero value.
func (d *Decoder) slow(b []byte, off, frames int) (Kind, int, error) {
	if d.max == (bounds{}) {
		d.max = Limits{}.bounds()
	}
	for {
		d.off, d.frames, d.need = off, frames, 0
		if off >= len(b) {
			d.need = off + shortHeader
			return NeedMore, 0, nil
		}
		h, ok, huge := parseHeader(b[off:])
		command := h.flags&FlagCommand != 0
		switch {
		case command && h.flags&FlagMore != 0:
			return NeedMore, 0, malformed("decode", "command with MORE")
		case !command && frames >= d.max.frames:
			return NeedMore, 0, tooLarge("decode", "more frames than MaxFrames")
		case !ok:
			d.need = off + h.size
			return NeedMore, 0, nil
		case huge || h.body > math.MaxInt-2*longHeader-off:
			return NeedMore, 0, tooLarge("decode", "size of a frame")
		}
		end := off + h.size + h.body
		if command {
			if h.body > d.max.command {
				return NeedMore, 0, tooLarge("decode", "command above MaxCommand")
			}
			if end > len(b) {
				d.need = end
				return NeedMore, 0, nil
			}
			return d.command(b[:end])
		}
		if end > d.max.message {
			return NeedMore, 0, tooLarge("decode", "message above MaxMessage")
		}
		if end > len(b) {
			d.need = end
			if h.flags&FlagMore != 0 {
				d.need += shortHeader
			}
			return NeedMore, 0, nil
		}
		off = end
		frames++
		if h.flags&FlagMore == 0 {
			d.endMessage()
			return KindMessage, off, nil
		}
	}
}

// command returns the command that ends b and that a partial message of d.off
// bytes precedes.
func (d *Decoder) command(b []byte) (Kind, int, error) {
	size := len(b) - d.off
	if d.off == 0 {
		return KindCommand, size, nil
	}
	inside, moved := d.inside+int64(size), d.moved+int64(len(b))
	if (moved-rotationFree)/rotationFactor > int64(d.off)+inside {
		return NeedMore, 0, tooLarge("decode", "too many commands inside a message")
	}
	d.inside, d.moved = inside, moved
	rotate(b, d.off)
	return KindCommand, size, nil
}

// rotate exchanges b[:k] and b[k:] in place.
func rotate(b []byte, k int) {
	var buf [256]byte
	switch rest := len(b) - k; {
	case rest <= len(buf): // nearly always: a heartbeat
		n := copy(buf[:], b[k:])
		copy(b[n:], b[:k])
		copy(b, buf[:n])
	case k <= len(buf):
		n := copy(buf[:], b[:k])
		copy(b, b[n:])
		copy(b[rest:], buf[:n])
	default:
		slices.Reverse(b[:k])
		slices.Reverse(b[k:])
		slices.Reverse(b)
	}
}

// Need returns how many bytes b must hold at least before Next can return a
// message or command, as far as that is known from the bytes seen. It is
// never much above what the limits allow (MaxMessage and one command), so it may
// guide the choice of a buffer. But it is what the peer announced: nothing that
// large should be allocated before the bytes arrive.
func (d *Decoder) Need() int {
	if d.need == 0 {
		return d.off + shortHeader
	}
	return d.need
}
