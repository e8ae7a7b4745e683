package zmtp

import (
	"math"
	"slices"
)

// Kind is the kind of element that [Decoder.Next] has found.
type Kind uint8

const (
	// KindNeedMore means that the bytes hold no complete message or command.
	KindNeedMore Kind = iota
	// KindMessage means that b[:n] is a complete message, WireMessage(b[:n]).
	KindMessage
	// KindCommand means that b[:n] is a complete command frame. Its body is
	// CommandBody(b[:n]).
	KindCommand
)

// Decoder splits the bytes received after the handshake into messages and
// commands. It holds no bytes itself; they stay in the caller's buffer.
//
// The zero value is ready to use, with the default limits. A Decoder must be
// used by one goroutine at a time.
type Decoder struct {
	off    int   // bytes of complete frames of a partial message: offset of the next header
	frames int   // number of these frames
	need   int   // result of Need, or 0 if nothing is known
	last   bool  // need is the size of the whole message
	moved  int64 // bytes moved for commands inside this message
	inside int64 // bytes of these commands
	max    bounds
}

// NewDecoder returns a Decoder with the given limits.
func NewDecoder(l Limits) *Decoder {
	return &Decoder{max: l.bounds()}
}

// SetLimits changes the limits for frames that have not been examined yet.
func (d *Decoder) SetLimits(l Limits) { d.max = l.bounds() }

// Reset discards a partial message, so that the Decoder can be used for another
// stream. It keeps the limits.
func (d *Decoder) Reset() { *d = Decoder{max: d.max} }

// Next looks for a message or command at the start of b, which must hold the
// bytes received and not consumed yet. With KindMessage and KindCommand, n is
// its size, and the caller must drop b[:n] before the next call. With KindNeedMore,
// n is 0, and the next call must be given the same bytes again, possibly at
// another address, followed by more. Next remembers the bytes that it has examined, so
// the total cost is linear in the number of bytes even if they arrive one by one.
//
// A peer may send a command between two frames of a message; libzmq does so
// with heartbeats. Next returns such a command first: it moves the command in
// front of the partial message, within b. This is the only case in which Next
// changes b.
//
// An error is a [*ProtocolError] that matches ErrMalformed or ErrTooLarge. The
// stream cannot be decoded further; Next returns the error again.
func (d *Decoder) Next(b []byte) (kind Kind, n int, err error) {
	// The time for a short frame is the latency of one dependency chain: load
	// its size, add it, load the next size there. Everything else runs in
	// parallel, so fewer checks gain nothing. One load of both bytes was slower.
	// Predicting each size to be that of the previous message was a quarter
	// faster on messages of one shape and as much slower on others.
	off, frames := d.off, d.frames
	// The bytes that are within MaxMessage; slow handles everything else.
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

// slow continues at off for every case except a complete short frame: long
// frames, commands, missing bytes, limits, and the zero value.
func (d *Decoder) slow(b []byte, off, frames int) (Kind, int, error) {
	if d.max == (bounds{}) {
		d.max = Limits{}.bounds()
	}
	for {
		d.off, d.frames, d.need, d.last = off, frames, 0, false
		if off >= len(b) {
			d.need = off + shortHeader
			return KindNeedMore, 0, nil
		}
		h, ok, huge := parseHeader(b[off:])
		command := h.flags&FlagCommand != 0
		switch {
		case command && h.flags&FlagMore != 0:
			return KindNeedMore, 0, malformed("decode", "command with MORE")
		case !command && frames >= d.max.frames:
			return KindNeedMore, 0, tooLarge("decode", "more frames than MaxFrames")
		case !ok:
			d.need = off + h.size
			return KindNeedMore, 0, nil
		case huge || h.body > math.MaxInt-2*longHeader-off:
			return KindNeedMore, 0, tooLarge("decode", "size of a frame")
		}
		end := off + h.size + h.body
		if command {
			if h.body > d.max.command {
				return KindNeedMore, 0, tooLarge("decode", "command above MaxCommand")
			}
			if end > len(b) {
				d.need = end
				return KindNeedMore, 0, nil
			}
			return d.command(b[:end])
		}
		if end > d.max.message {
			return KindNeedMore, 0, tooLarge("decode", "message above MaxMessage")
		}
		if end > len(b) {
			d.need, d.last = end, h.flags&FlagMore == 0
			if !d.last {
				d.need += shortHeader
			}
			return KindNeedMore, 0, nil
		}
		off = end
		frames++
		if h.flags&FlagMore == 0 {
			d.endMessage()
			return KindMessage, off, nil
		}
	}
}

// command returns the command at the end of b, which follows a partial message
// of d.off bytes.
func (d *Decoder) command(b []byte) (Kind, int, error) {
	size := len(b) - d.off
	if d.off == 0 {
		return KindCommand, size, nil
	}
	inside, moved := d.inside+int64(size), d.moved+int64(len(b))
	if (moved-rotationFree)/rotationFactor > int64(d.off)+inside {
		return KindNeedMore, 0, tooLarge("decode", "too many commands inside a message")
	}
	d.inside, d.moved = inside, moved
	rotate(b, d.off)
	return KindCommand, size, nil
}

// rotate exchanges b[:k] and b[k:] in place.
func rotate(b []byte, k int) {
	var buf [256]byte
	switch rest := len(b) - k; {
	case rest <= len(buf): // the usual case: a heartbeat
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

// Need returns the minimum number of bytes that b must hold before Next can
// return a message or command, as far as known from the bytes examined. It is
// never much larger than the limits allow, MaxMessage plus one command, so it
// can be used to choose the size of a buffer. But the peer has only announced
// that size: do not allocate as much before the bytes arrive.
func (d *Decoder) Need() int {
	if d.need == 0 {
		return d.off + shortHeader
	}
	return d.need
}

// Last reports whether Need returns the size of the whole message, because the header of
// its last frame has been examined. Before that, a message grows with each frame: do not move
// it to a buffer of the size that each of them needs.
func (d *Decoder) Last() bool { return d.need > 0 && d.last }
