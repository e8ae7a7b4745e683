// Package jsonline writes and reads lines of JSON, each an object. Bytes that are valid UTF-8 are
// a string under their name. Other bytes are in base64, under their name with _base64 appended.
package jsonline

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"clustermap/internal/visible"
)

// AppendField appends "name":"text" or "name_base64":"…".
func AppendField(dst []byte, name string, text []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	if !utf8.Valid(text) {
		dst = append(dst, `_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, text)
		return append(dst, '"')
	}
	dst = append(dst, `":`...)
	return AppendString(dst, text)
}

// AppendNumber appends "name":n.
func AppendNumber(dst []byte, name string, n int64) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return strconv.AppendInt(dst, n, 10)
}

// AppendString appends valid UTF-8 as a JSON string (RFC 8259 §7). Unlike
// encoding/json it does not escape characters that are special in HTML, but all that could
// act on a terminal: see package visible.
func AppendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		n := bytes.IndexAny(text, "\"\\\n\r\t")
		if n < 0 {
			n = len(text)
		}
		dst = visible.Append(dst, text[:n], "")
		if n == len(text) {
			break
		}
		c := text[n]
		switch c {
		case '\n':
			c = 'n'
		case '\r':
			c = 'r'
		case '\t':
			c = 't'
		}
		dst = append(dst, '\\', c)
		text = text[n+1:]
	}
	return append(dst, '"')
}
