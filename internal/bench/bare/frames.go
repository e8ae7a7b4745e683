package bare

import (
	"encoding/binary"
	"errors"
)

// The wire form of a KVSET and of a KVPUB (ZMTP 3.1 §frames, RFC 12): five
// frames, key, sequence, UUID, properties and value.
const (
	frames = 5

	flagMore = 0x01
	flagLong = 0x02

	keyFrame, sequenceFrame, valueFrame = 0, 1, 4
)

// uuid stands in for the UUID that a publisher gives each of its updates.
var uuid [16]byte

// appendMessage appends a KVSET.
func appendMessage(dst []byte, key string, value []byte) []byte {
	dst = append(dst, flagMore, byte(len(key)))
	dst = append(dst, key...)
	dst = append(dst, flagMore, 8, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, flagMore, byte(len(uuid)))
	dst = append(dst, uuid[:]...)
	dst = append(dst, flagMore, 0)
	if len(value) <= 255 {
		dst = append(dst, 0, byte(len(value)))
	} else {
		dst = append(dst, flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(value)))
	}
	return append(dst, value...)
}

// message is where the bodies of a message's frames lie in a buffer.
type message struct{ start, end [frames]int }

var errFrame = errors.New("malformed frame")

// parse takes apart the message that begins at from, and returns its end: 0 if
// it is not all there yet.
func (m *message) parse(b []byte, from int) (end int, err error) {
	at := from
	for i := range frames {
		if len(b)-at < 2 {
			return 0, nil
		}
		flags, size := b[at], int(b[at+1])
		at += 2
		if flags&flagLong != 0 {
			if at--; len(b)-at < 8 {
				return 0, nil
			}
			size = int(binary.BigEndian.Uint64(b[at:]))
			at += 8
		}
		if (flags&flagMore != 0) != (i < frames-1) || size < 0 {
			return 0, errFrame
		}
		if len(b)-at < size {
			return 0, nil
		}
		m.start[i] = at
		at += size
		m.end[i] = at
	}
	if m.end[sequenceFrame]-m.start[sequenceFrame] != 8 {
		return 0, errFrame
	}
	return at, nil
}

// batch is how many messages are stored together.
const batch = 32

// parseBatch takes messages apart, from the one that begins at from on, up to a batch of
// them. It returns their number and the end of the last one.
func parseBatch(messages *[batch]message, b []byte, from int) (n, end int, err error) {
	for end = from; n < batch; n++ {
		next, err := messages[n].parse(b, end)
		if next == 0 || err != nil {
			return n, end, err
		}
		end = next
	}
	return n, end, nil
}

func (m *message) key(b []byte) []byte   { return b[m.start[keyFrame]:m.end[keyFrame]] }
func (m *message) value(b []byte) []byte { return b[m.start[valueFrame]:m.end[valueFrame]] }

// sequence returns the eight bytes of the sequence.
func (m *message) sequence(b []byte) []byte {
	return b[m.start[sequenceFrame]:m.end[sequenceFrame]]
}
