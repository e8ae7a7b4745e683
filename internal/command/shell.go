package command

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ShellWord returns text as one word for a POSIX shell, on one line: unchanged if it
// has only letters, digits and characters that no shell expands, else in single quotes.
// Text that is not printable UTF-8 is in the form $'…' of POSIX 2024, bash and zsh.
func ShellWord(text string) string {
	switch {
	case text == "":
		return "''"
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return escapedWord(text)
	case strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/_-.,:+@%", r)
	}):
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return text
}

// escapedWord returns text in the form $'…'.
func escapedWord(text string) string {
	word := []byte("$'")
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\'' || r == '\\':
			word = append(word, '\\', text[i])
		case unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			word = append(word, text[i:i+size]...)
		default:
			// Three octal digits, since a shell may take more than two hexadecimal ones.
			for _, b := range []byte(text[i : i+size]) {
				word = fmt.Appendf(word, `\%03o`, b)
			}
		}
		i += size
	}
	return string(append(word, '\''))
}
