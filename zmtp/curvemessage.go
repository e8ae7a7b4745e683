package zmtp

import (
	"encoding/binary"
	"math"
	"slices"
)

// A MESSAGE command (RFC 26), in bytes: name 8, short nonce 8, Box[flags 1,
// body]. It is sent in a frame without the MORE flag and, as libzmq requires,
// without the COMMAND flag. The flags in the box are those of the encrypted frame.
const (
	commandMessage = "MESSAGE"
	messageName    = "\x07" + commandMessage
	messageNonce   = len(messageName)
	messageSealed  = messageNonce + shortNonce
	messageFixed   = messageSealed + boxTag + 1

	// A bit of the flags byte in the box, which the RFC reserves and libzmq uses for commands.
	curveCommand = 0x02
)

// curveCodec is the Codec of a CURVE connection. Each frame becomes one
// MESSAGE.
type curveCodec struct {
	out curveSender
	_   [64]byte // keeps the two directions, used by different goroutines, in different cache lines
	in  curveReceiver
}

// curveSender is the sending direction.
type curveSender struct {
	box   messageBox
	count uint64 // the last short nonce
	err   error
}

// curveReceiver is the receiving direction.
type curveReceiver struct {
	box  messageBox
	seen uint64 // the last short nonce
	max  int    // bytes of a frame's body, in the box
	err  error
}

// newCurveCodec returns the codec of one side. sent and seen are the last short
// nonces of the two directions.
func newCurveCodec(key *secretKey, server bool, sent, seen uint64, l Limits) Codec {
	c := &curveCodec{}
	c.out.count, c.in.seen = sent, seen
	send, receive := prefixToServer, prefixToClient
	if server {
		send, receive = receive, send
	}
	c.out.box.init(key, send)
	c.in.box.init(key, receive)
	limits := l.bounds()
	// The limits include the frame header. The Decoder refuses messages that
	// are too large in total.
	c.in.max = min(max(limits.message, limits.command), math.MaxInt-messageFixed-longHeader)
	return c
}

// MaxEncoded counts a long header and the bytes of a MESSAGE for each frame.
func (c *curveCodec) MaxEncoded(size, count int) int {
	return size + count*(longHeader+messageFixed)
}

// Encode turns each frame into a MESSAGE.
func (c *curveCodec) Encode(dst, frames []byte) ([]byte, error) {
	s := &c.out
	for s.err == nil && len(frames) > 0 {
		h, ok, huge := parseHeader(frames)
		if !ok || huge || len(frames)-h.size < h.body {
			s.err = malformed("encode", "part of a frame")
			break
		}
		end := h.size + h.body
		dst = s.append(dst, h.flags, frames[h.size:end])
		frames = frames[end:]
	}
	return dst, s.err
}

// append turns one frame into a MESSAGE.
func (s *curveSender) append(dst []byte, flags byte, body []byte) []byte {
	if s.count == math.MaxUint64 {
		s.err = tooLarge("encode", "no short nonce left")
		return dst
	}
	s.count++
	boxed := flags & FlagMore
	if flags&FlagCommand != 0 {
		boxed |= curveCommand
	}
	size := messageFixed + len(body)
	dst = slices.Grow(dst, FrameSize(size))
	dst = AppendHeader(dst, 0, size)
	dst = append(dst, messageName...)
	dst = binary.BigEndian.AppendUint64(dst, s.count)
	return s.box.seal(dst, dst[len(dst)-shortNonce:], boxed, body)
}

// Decode turns each MESSAGE into a frame.
func (c *curveCodec) Decode(dst, wire []byte, limit int) (out []byte, used, need int, err error) {
	r := &c.in
	start := len(dst)
	limit = max(limit, 1)
	need = shortHeader
	for r.err == nil && len(dst)-start < limit {
		var n int
		dst, n, need = r.next(dst, wire[used:])
		if n == 0 {
			break
		}
		used += n
	}
	return dst, used, need, r.err
}

// next decodes one MESSAGE at the start of wire. n is 0 if it is incomplete or
// r.err is set.
func (r *curveReceiver) next(dst, wire []byte) (out []byte, n, need int) {
	h, ok, huge := parseHeader(wire)
	switch {
	case h.size == 0:
		return dst, 0, shortHeader
	case h.flags&FlagMore != 0:
		r.err = malformed("decode", "MESSAGE with MORE")
		return dst, 0, 1
	case !ok:
		return dst, 0, h.size
	case huge || h.body-messageFixed > r.max:
		r.err = tooLarge("decode", "MESSAGE above MaxMessage")
		return dst, 0, 1
	case h.body < messageFixed:
		r.err = malformed("decode", "size of MESSAGE")
		return dst, 0, 1
	}
	if n = h.size + h.body; len(wire) < n {
		return dst, 0, n
	}
	unit := wire[h.size:n]
	if string(unit[:messageNonce]) != messageName {
		r.err = malformed("decode", "command that is not MESSAGE")
		return dst, 0, 1
	}
	count := binary.BigEndian.Uint64(unit[messageNonce:])
	if count <= r.seen {
		r.err = cryptographic("decode", "nonce of MESSAGE is not above the last")
		return dst, 0, 1
	}

	// The flags byte precedes the body in the box. It is put where the last
	// byte of the frame header will be.
	size := h.body - messageFixed
	head := FrameSize(size) - size
	start := len(dst)
	dst = slices.Grow(dst, head+size)
	opened, ok := r.box.open(dst[:start+head-1], unit[messageNonce:messageSealed], unit[messageSealed:])
	if !ok {
		r.err = cryptographic("decode", "MESSAGE does not open")
		return dst, 0, 1
	}
	r.seen = count
	boxed := opened[start+head-1]
	flags := boxed & FlagMore
	if boxed&curveCommand != 0 {
		flags |= FlagCommand
	}
	AppendHeader(opened[:start], flags, size)
	return opened, n, shortHeader
}
