package zmtp

import (
	"encoding/binary"
	"slices"
)

// WireMessage is a complete message in wire form: its frames, including their
// headers, one after another. FlagMore is set on all frames except the last.
//
// Only convert bytes to a WireMessage that a [Decoder] has returned as KindMessage
// or that [AppendMessage] has produced. The methods do not check the bytes:
// other bytes result in wrong frames or a panic, but the methods never read
// beyond the slice. A WireMessage is valid as long as the buffer to which it
// refers.
type WireMessage []byte

// Next returns the body of the first frame and the rest of the message, which
// is empty after the last frame. body refers to m and has no additional
// capacity.
//
//	for rest := m; len(rest) > 0; {
//		var body []byte
//		body, rest = rest.Next()
//		…
//	}
//
// Next panics if m is empty.
func (m WireMessage) Next() (body []byte, rest WireMessage) {
	if m[0]&FlagLong == 0 {
		end := shortHeader + int(m[1])
		return m[shortHeader:end:end], m[end:]
	}
	return m.nextLong()
}

// nextLong is Next for a frame with a long header. It is a separate function so
// that Next can be inlined.
func (m WireMessage) nextLong() (body []byte, rest WireMessage) {
	end := longHeader + int(binary.BigEndian.Uint64(m[1:]))
	return m[longHeader:end:end], m[end:]
}

// Len returns the number of frames.
func (m WireMessage) Len() int {
	n := 0
	for rest := m; len(rest) > 0; n++ {
		_, rest = rest.Next()
	}
	return n
}

// AppendFrames appends the bodies of all frames to dst. They refer to m.
func (m WireMessage) AppendFrames(dst [][]byte) [][]byte {
	for rest := m; len(rest) > 0; {
		var body []byte
		body, rest = rest.Next()
		dst = append(dst, body)
	}
	return dst
}

// AppendMessage appends a message with the given frames to dst, in wire form.
// The appended bytes are one [WireMessage]. Without frames it appends nothing,
// because a message has at least one frame, which may be empty.
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
