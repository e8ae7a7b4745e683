package command

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// AppendPlain appends text unchanged if that is unambiguous in a line, and otherwise as
// a quoted Go string: if it is empty, begins with a quote, or contains anything but
// printable UTF-8. Text with spaces is appended unchanged only if spaces is true, as for
// the last column.
func AppendPlain(dst, text []byte, spaces bool) []byte {
	plain := len(text) > 0 && text[0] != '"'
	for rest := text; plain && len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		plain = (r != utf8.RuneError || n > 1) && unicode.IsPrint(r) && (spaces || r != ' ')
		rest = rest[n:]
	}
	if plain {
		return append(dst, text...)
	}
	return strconv.AppendQuote(dst, string(text))
}
