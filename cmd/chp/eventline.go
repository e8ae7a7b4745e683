package main

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"clustermap/chp"
)

// appendEventJSON appends an event of watch as a JSON line.
func appendEventJSON(dst []byte, e chp.Event) []byte {
	dst = append(dst, `{"op":"`...)
	dst = append(dst, opName(e.Op)...)
	dst = append(dst, '"')
	if e.Cause != 0 {
		dst = append(dst, `,"cause":"`...)
		dst = append(dst, e.Cause.String()...)
		dst = append(dst, '"')
	}
	dst = appendJSONTTL(dst, e.TTL)
	dst = append(dst, ',')
	if e.Op != chp.OpSynced {
		dst = appendJSONField(dst, "key", e.Key)
		dst = append(dst, ',')
	}
	if e.Op == chp.OpSet {
		dst = appendJSONField(dst, "value", e.Value)
		dst = append(dst, ',')
	}
	dst = appendJSONNumber(dst, "seq", e.Sequence)
	return append(dst, '}', '\n')
}

// appendEventText appends an event of watch as a line to be read by people:
// operation, sequence, key and value, a blank between.
func appendEventText(dst []byte, e chp.Event) []byte {
	dst = append(dst, opName(e.Op)...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, e.Sequence, 10)
	if e.Op != chp.OpSynced {
		dst = append(dst, ' ')
		dst = appendPlain(dst, e.Key, false)
	}
	if e.Op == chp.OpSet {
		dst = append(dst, ' ')
		dst = appendPlain(dst, e.Value, true)
	}
	return append(dst, '\n')
}

func opName(op chp.Op) string {
	switch op {
	case chp.OpSet:
		return "set"
	case chp.OpDelete:
		return "del"
	default:
		return "synced"
	}
}

// appendPlain appends text as it is where that is unmistakable on a line, and
// as a quoted Go string where it is not: other than printable UTF-8, empty, or
// beginning with a quote. Blanks are plain only where blanks says so: in the
// last column.
func appendPlain(dst, text []byte, blanks bool) []byte {
	plain := len(text) > 0 && text[0] != '"'
	for rest := text; plain && len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		plain = (r != utf8.RuneError || n > 1) && unicode.IsPrint(r) && (blanks || r != ' ')
		rest = rest[n:]
	}
	if plain {
		return append(dst, text...)
	}
	return strconv.AppendQuote(dst, string(text))
}
