package zmtp

import (
	"encoding/binary"
	"math"
)

// In ZMTP 1.0 the length of flags and body together comes first (RFC 13):
//
//	short: length(1) = body+1, 1..254 | flags(1) | body
//	long : FF | length(8) = body+1    | flags(1) | body
//
// Bit 0 of the flags is MORE, as in later versions. The others are reserved and
// ignored.
const (
	shortHeader1 = 2
	longHeader1  = 10
	// longMark1 in place of the length means that the length follows in eight
	// bytes.
	longMark1 = 0xFF
)

// parseHeader1 parses the header of a ZMTP 1.0 frame at the start of b. If
// bytes are missing, ok is false and h.size is the size of the header.
func parseHeader1(b []byte) (h header, ok bool, err error) {
	if len(b) == 0 {
		return header{size: shortHeader1}, false, nil
	}
	if b[0] != longMark1 {
		h.size = shortHeader1
		if b[0] == 0 {
			return h, false, malformed("decode", "length 0 of a ZMTP 1.0 frame")
		}
		if len(b) < shortHeader1 {
			return h, false, nil
		}
		h.flags, h.body = b[1]&FlagMore, int(b[0])-1
		return h, true, nil
	}
	h.size = longHeader1
	if len(b) < longHeader1 {
		return h, false, nil
	}
	length := binary.BigEndian.Uint64(b[1:])
	switch {
	case length == 0:
		return h, false, malformed("decode", "length 0 of a ZMTP 1.0 frame")
	case length > math.MaxInt:
		return h, false, tooLarge("decode", "size of a frame")
	}
	h.flags, h.body = b[9]&FlagMore, int(length-1)
	return h, true, nil
}

// appendHeader1 appends the header of a ZMTP 1.0 frame.
func appendHeader1(dst []byte, flags byte, body int) []byte {
	if length := body + 1; length < longMark1 {
		dst = append(dst, byte(length))
	} else {
		dst = append(dst, longMark1)
		dst = binary.BigEndian.AppendUint64(dst, uint64(length))
	}
	return append(dst, flags)
}
