package zmtp

import (
	"encoding/binary"
	"math"
)

// Bits of the flags byte of a frame (RFC 37, section "Framing"). The other bits
// are reserved: they are sent as zero and ignored on receipt.
const (
	FlagMore    = 0x01 // another frame of the same message follows
	FlagLong    = 0x02 // the size has eight bytes instead of one
	FlagCommand = 0x04 // the body is a command, not part of a message
)

const (
	// shortHeader is the size of a header with a flags byte and a size of one
	// byte.
	shortHeader = 2
	// longHeader is the size of a header with a flags byte and a size of eight
	// bytes.
	longHeader = 9
	// shortBody is the size of the largest body with a short header.
	shortBody = 255
)

// AppendHeader appends the header of a frame whose body has size bytes to dst.
// Only FlagMore and FlagCommand of flags are used. The header is short for
// bodies of up to 255 bytes and long for larger ones. size must not be
// negative.
func AppendHeader(dst []byte, flags byte, size int) []byte {
	flags &= FlagMore | FlagCommand
	if size <= shortBody {
		return append(dst, flags, byte(size))
	}
	dst = append(dst, flags|FlagLong)
	return binary.BigEndian.AppendUint64(dst, uint64(size))
}

// AppendFrame appends one message frame to dst. If more is true, another frame
// of the same message must follow.
func AppendFrame(dst, body []byte, more bool) []byte {
	var flags byte
	if more {
		flags = FlagMore
	}
	return append(AppendHeader(dst, flags, len(body)), body...)
}

// FrameSize returns the size on the wire of a frame with a body of the given
// size: two bytes more for bodies of up to 255 bytes, nine for larger ones.
func FrameSize(body int) int {
	if body <= shortBody {
		return shortHeader + body
	}
	return longHeader + body
}

// header is a decoded frame header.
type header struct {
	flags byte
	size  int // bytes of the header itself
	body  int // bytes of the body that follows
}

// parseHeader parses the frame header at the start of b. If bytes are missing,
// ok is false, and h.size is the size of the header, or zero if b is empty.
// tooLarge reports a size of 2^63 or more, which RFC 37 forbids, or one that
// does not fit in an int.
func parseHeader(b []byte) (h header, ok, tooLarge bool) {
	if len(b) == 0 {
		return h, false, false
	}
	h.flags = b[0]
	if h.flags&FlagLong == 0 {
		h.size = shortHeader
		if len(b) < shortHeader {
			return h, false, false
		}
		h.body = int(b[1])
		return h, true, false
	}
	h.size = longHeader
	if len(b) < longHeader {
		return h, false, false
	}
	size := binary.BigEndian.Uint64(b[1:longHeader])
	if size > math.MaxInt {
		return h, true, true
	}
	h.body = int(size)
	return h, true, false
}
