package titanic

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// kind is the kind of a stored message. The values are part of the format.
type kind byte

const (
	kindRequest kind = 'q'
	kindReply   kind = 'r'
	kindRefused kind = 'e' // a RefusedError: code and text
)

// header is the header of a stored message.
type header struct {
	kind    kind
	id      UUID
	at      int64  // wall clock when the request or reply arrived, nanoseconds since 1970
	service string // of a request
}

// A message is stored as
//
//	kind      1 byte
//	UUID      16 bytes
//	time      8 bytes, big-endian
//	service   length as a uvarint, and the name; only for requests
//	frames    for each, length as a uvarint, and the bytes
//	checksum  CRC-32C of all of this, 4 bytes, big-endian
const (
	fixedBytes    = 1 + 16 + 8
	checksumBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged reports that a stored message has changed.
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

// decodeHeader decodes the header of a stored message, and returns the encoded frames. It
// does not check the checksum, so it does not read pages of the file that only contain
// frames.
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

// decode decodes a stored message. The frames are views of b.
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

// cutField splits b after a length and as many bytes.
func cutField(b []byte) (field, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, false
	}
	end := used + int(n)
	return b[used:end:end], b[end:], true
}
