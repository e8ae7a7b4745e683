package titanic

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// MaxFrames is how many frames a request or a reply can have.
const MaxFrames = 1024

// kind says what a stored message is. The values are part of the format.
type kind byte

const (
	kindRequest kind = 'q'
	kindReply   kind = 'r' // the service has answered
	kindRefused kind = 'e' // the service has refused the request; the frames say why
)

// header is what is kept in memory of a stored message.
type header struct {
	kind    kind
	id      UUID
	at      int64  // wall clock when the request or the reply came, nanoseconds since 1970
	service string // of a request
}

// A message is stored as
//
//	kind      1 byte
//	UUID      16 bytes
//	time      8 bytes, big-endian
//	service   its length as a uvarint, and the name; for a request only
//	frames    each its length as a uvarint, and its bytes
//	checksum  CRC-32C of all this, 4 bytes, big-endian
const (
	fixedBytes    = 1 + 16 + 8
	checksumBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is for a stored message that is not as it was written.
var errDamaged = errors.New("damaged message")

// encode returns the stored form of a message.
func encode(h header, frames [][]byte) []byte {
	size := fixedBytes + binary.MaxVarintLen64 + len(h.service) + checksumBytes
	for _, f := range frames {
		size += binary.MaxVarintLen64 + len(f)
	}
	b := make([]byte, 0, size)
	b = append(b, byte(h.kind))
	b = append(b, h.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.at))
	if h.kind == kindRequest {
		b = binary.AppendUvarint(b, uint64(len(h.service)))
		b = append(b, h.service...)
	}
	for _, f := range frames {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeHeader reads the beginning of a stored message, and returns where its
// frames are. It does not look at the checksum, and so not at pages of the file
// that only hold frames.
func decodeHeader(b []byte) (h header, frames []byte, err error) {
	if len(b) < fixedBytes+checksumBytes {
		return header{}, nil, errDamaged
	}
	h.kind = kind(b[0])
	copy(h.id[:], b[1:])
	h.at = int64(binary.BigEndian.Uint64(b[17:]))
	rest := b[fixedBytes : len(b)-checksumBytes]
	switch h.kind {
	case kindReply, kindRefused:
	case kindRequest:
		name, after, ok := cutField(rest)
		if !ok {
			return header{}, nil, errDamaged
		}
		h.service, rest = string(name), after
	default:
		return header{}, nil, errDamaged
	}
	return h, rest, nil
}

// decode reads a stored message. The frames refer to b.
func decode(b []byte) (h header, frames [][]byte, err error) {
	h, rest, err := decodeHeader(b)
	if err != nil {
		return header{}, nil, err
	}
	content, sum := b[:len(b)-checksumBytes], b[len(b)-checksumBytes:]
	if crc32.Checksum(content, castagnoli) != binary.BigEndian.Uint32(sum) {
		return header{}, nil, errDamaged
	}
	for len(rest) > 0 {
		f, after, ok := cutField(rest)
		if !ok || len(frames) == MaxFrames {
			return header{}, nil, errDamaged
		}
		frames, rest = append(frames, f), after
	}
	return h, frames, nil
}

// cutField takes a length and as many bytes off the beginning of b.
func cutField(b []byte) (field, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, false
	}
	end := used + int(n)
	return b[used:end:end], b[end:], true
}
