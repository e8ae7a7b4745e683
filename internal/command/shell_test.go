package command

import (
	"os/exec"
	"strings"
	"testing"
)

// A shell reads what ShellWord returns as the text itself, and it is on one line.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/lamp/1":            "/lamp/1",
		"/größe":             "/größe",
		"a+b@c%,:._-":        "a+b@c%,:._-",
		"":                   "''",
		"/my lamp":           "'/my lamp'",
		"/it's":              `'/it'\''s'`,
		"$HOME `id` \"x\" *": "'$HOME `id` \"x\" *'",
		"~/x":                "'~/x'",
		"a\\b":               `'a\b'`,
		"a\nb":               `$'a\012b'`,
		"\t'\\\x00F\u00a0":   `$'\011\'\\\000F\302\240'`,
		"\xff1":              `$'\3771'`,
	} {
		if got := ShellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	for _, text := range []string{"", "/lamp/1", "/größe", "x y", "it's", "$HOME `id` \"x\" * ? [a] {b,c} !! # ; & | < > ( ) = ^ ~", "a\nb\r\t", "\\'\n", "\x7f\xff\xfe1", "\u00a0\u2028"} {
		word := ShellWord(text)
		out, err := exec.Command(bash, "-c", "printf '%s.' "+word).Output()
		if err != nil || string(out) != text+"." || strings.ContainsAny(word, "\n\r") {
			t.Errorf("%q as %s: %q, %v", text, word, out, err)
		}
	}
}
