// Package visible escapes text from peers, which a terminal, a log or a person must not
// take for anything but text: control characters could move the cursor, begin a line that
// looks like another message, or print text in another order. All output of the commands
// goes through it, and all errors with text from a peer.
package visible

import (
	"strings"
	"unicode/utf8"
)

// Is reports whether a character is shown as it is. The others are the control characters
// C0, DEL and C1, the marks, embeddings, overrides and isolates of bidirectional text
// (Unicode UAX #9), and the separators of lines and paragraphs.
func Is(r rune) bool {
	switch {
	case r < ' ', 0x7F <= r && r <= 0x9F,
		r == 0x061C, r == 0x200E, r == 0x200F, 0x202A <= r && r <= 0x202E, 0x2066 <= r && r <= 0x2069,
		r == 0x2028, r == 0x2029:
		return false
	}
	return true
}

// Append appends text. A character that is not shown as it is becomes \u and four
// hexadecimal digits, which is also valid within a string of JSON, and a byte that is not
// UTF-8 becomes \x and two digits. The characters in keep are appended unchanged.
func Append(dst, text []byte, keep string) []byte {
	start := 0
	for i := 0; i < len(text); {
		if c := text[i]; ' ' <= c && c <= '~' { // fast
			i++
			continue
		}
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		invalid := r == utf8.RuneError && size == 1
		if !invalid && (Is(r) || strings.ContainsRune(keep, r)) {
			i += size
			continue
		}
		dst = append(dst, text[start:i]...)
		if invalid {
			dst = appendHex(append(dst, '\\', 'x'), rune(text[i]), 2)
		} else {
			dst = appendHex(append(dst, '\\', 'u'), r, 4)
		}
		i += size
		start = i
	}
	return append(dst, text[start:]...)
}

// String is Append for a string, which it returns if there is nothing to escape. A newline
// is escaped too.
func String(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !Is(r) }) {
		return text
	}
	return string(Append(nil, []byte(text), ""))
}

// appendHex appends the last digits of r.
func appendHex(dst []byte, r rune, digits int) []byte {
	const hex = "0123456789abcdef"
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hex[r>>shift&15])
	}
	return dst
}
