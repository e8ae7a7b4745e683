package zmtp

import (
	"encoding/binary"
	"slices"
)

// Message is the wire form of exactly one whole message: its frames, headers
// included, one after the other; FlagMore is set on all but the last.
//
// Only bytes that a [Decoder] reported as KindMessage, or that
// [AppendMessage] produced, may be converted to a Message. The methods take
// that on trust: other bytes give other frames, or a panic, but never reach
// beyond the slice. A Message is as long-lived as the buffer it is a view of.
type Message []byte

// Next returns the body of the first frame and what follows it. rest is empty
// after the last frame. body is a view with no capacity beyond its end.
//
//	for rest := m; len(rest) > 0; {
//		var body []byte
//		body, rest = rest.Next()
//		…
//	}
//
// Next panics on an empty Message.
func (m Message) Next() (body []byte, rest Message) {
	if m[0]&FlagLong == 0 {
		end := shortHeader + int(m[1])
		return m[shortHeader:end:end], m[end:]
	}
	return m.nextLong()
}

// nextLong is Next for a frame with a long header, kept apart so that Next
// stays small enough to be inlined.
func (m Message) nextLong() (body []byte, rest Message) {
	end := longHeader + int(binary.BigEndian.Uint64(m[1:]))
	return m[longHeader:end:end], m[end:]
}

// Len returns the number of frames.
func (m Message) Len() int {
	n := 0
	for rest := m; len(rest) > 0; n++ {
		_, rest = rest.Next()
	}
	return n
}

// AppendFrames appends the frames' bodies, views of m, to dst.
func (m Message) AppendFrames(dst [][]byte) [][]byte {
	for rest := m; len(rest) > 0; {
		var body []byte
		body, rest = rest.Next()
		dst = append(dst, body)
	}
	return dst
}

// AppendMessage appends the wire form of the message with the given frames:
// all that it adds to dst is one [Message]. Without frames it adds nothing,
// since a message has at least one (possibly empty) frame.
func AppendMessage(dst []byte, frames ...[]byte) []byte {
	if len(frames) == 1 {
		return AppendFrame(dst, frames[0], false)
	}
	size := 0
	for _, f := range frames {
		size += FrameSize(len(f))
	}
	dst = slices.Grow(dst, size)
	last := len(frames) - 1
	for i, f := range frames {
		dst = AppendFrame(dst, f, i < last)
	}
	return dst
}
