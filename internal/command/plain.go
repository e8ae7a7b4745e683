package command

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// AppendPlain appends text as it is where that is unmistakable on a line, and
// as a quoted Go string where it is not: other than printable UTF-8, empty, or
// beginning with a quote. A space is plain only with spaces: in the last
// column.
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
