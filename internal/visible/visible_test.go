package visible

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestAppend(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "",
		"plain ünï \U0001F600 \\ \"":         "plain ünï \U0001F600 \\ \"",
		"a\x1b]0;x\x07\r\n\tb\x7f":           `a\u001b]0;x\u0007\u000d\u000a\u0009b\u007f`,
		"\u009b31m\u0085":                    `\u009b31m\u0085`,
		"\u202eabc\u2066\u2069\u200f\u061c":  `\u202eabc\u2066\u2069\u200f\u061c`,
		"\u2028\u2029":                       `\u2028\u2029`,
		"\xff\x9b31m\xe2\x80":                `\xff\x9b31m\xe2\x80`,
		"\uFFFD is a character of its own":   "\uFFFD is a character of its own",
		"\xed\xa0\x80 is a surrogate":        `\xed\xa0\x80 is a surrogate`,
		"family \U0001F468\u200d\U0001F469":  "family \U0001F468\u200d\U0001F469",
		"ends with a part of a sequence\xf0": `ends with a part of a sequence\xf0`,
	} {
		if got := String(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := string(Append([]byte("x "), []byte("a\tb\n\r"), "\n\t")); got != "x a\tb\n\\u000d" {
		t.Errorf("%q", got)
	}
}

// What is escaped is, in a string of JSON, the same text.
func TestAppendInJSON(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if utf8.ValidRune(r) {
			all.WriteRune(r)
		}
	}
	line := append(Append([]byte{'"'}, []byte(all.String()), ""), '"')
	var back string
	if err := json.Unmarshal(line, &back); err != nil || back != all.String() {
		t.Errorf("%v; the same text: %v", err, back == all.String())
	}
	for _, r := range string(line) {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.In(r, unicode.Zl, unicode.Zp) {
			t.Errorf("%U is raw", r)
		}
	}
}
