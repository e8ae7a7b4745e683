package zmtp

import (
	"encoding/binary"
	"strings"
)

// z85Digits is the alphabet of Z85, in the order of the values (RFC 32).
const z85Digits = "0123456789" +
	"abcdefghijklmnopqrstuvwxyz" +
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ" +
	".-:+=^!/*?&<>()[]{}@%$#"

// EncodeZ85 returns src in Z85, the text form of CURVE keys: each four bytes,
// most significant first, become five printable characters (RFC 32). If the
// length of src is not a multiple of four, the error matches ErrMalformed.
func EncodeZ85(src []byte) (string, error) {
	if len(src)%4 != 0 {
		return "", malformed("z85", "length is not a multiple of 4")
	}
	out := make([]byte, 0, len(src)/4*5)
	for ; len(src) > 0; src = src[4:] {
		group := binary.BigEndian.Uint32(src)
		for divisor := uint32(85 * 85 * 85 * 85); divisor > 0; divisor /= 85 {
			out = append(out, z85Digits[group/divisor%85])
		}
	}
	return string(out), nil
}

// DecodeZ85 is the inverse of [EncodeZ85]. The error matches ErrMalformed if
// the length of text is not a multiple of five, if a character is not in the
// alphabet, or if a group of five characters stands for more than 2^32-1. The
// error does not reveal the text, which may be a secret.
func DecodeZ85(text string) ([]byte, error) {
	if len(text)%5 != 0 {
		return nil, malformed("z85", "length is not a multiple of 5")
	}
	out := make([]byte, 0, len(text)/5*4)
	for ; len(text) > 0; text = text[5:] {
		var group uint64
		for i := range 5 {
			value := strings.IndexByte(z85Digits, text[i])
			if value < 0 {
				return nil, malformed("z85", "character is not in the alphabet")
			}
			group = group*85 + uint64(value)
		}
		if group>>32 != 0 {
			return nil, malformed("z85", "group exceeds 2^32-1")
		}
		out = binary.BigEndian.AppendUint32(out, uint32(group))
	}
	return out, nil
}
