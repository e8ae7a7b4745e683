package command

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// Lines of JSON have one object per line. Bytes that are valid UTF-8 are a string under
// their name. Other bytes are in base64, under their name with _base64 appended.

// AppendJSONField appends "name":"text" or "name_base64":"…".
func AppendJSONField(dst []byte, name string, text []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	if !utf8.Valid(text) {
		dst = append(dst, `_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, text)
		return append(dst, '"')
	}
	dst = append(dst, `":`...)
	return AppendJSONString(dst, text)
}

// AppendJSONNumber appends "name":n.
func AppendJSONNumber(dst []byte, name string, n int64) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return strconv.AppendInt(dst, n, 10)
}

// AppendJSONString appends valid UTF-8 as a JSON string (RFC 8259 §7). Unlike
// encoding/json it does not escape characters that are special in HTML.
func AppendJSONString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7F {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			// Control characters, and DEL because of terminals.
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}
