package command

import "testing"

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"one two\nthree", "one two\nthree"},
		{"one\ntwo three", "one two\nthree"},
		{"one\n\ntwo", "one\n\ntwo"},
		{"unbreakable-word x", "unbreakable-word\nx"},
		{"  a  bc def\n  b  x", "  a  bc\n     def\n  b  x"},
		{"  a  bc d\n     ef\n     gh\ntext", "  a  bc\n     d\n     ef\n     gh\ntext"},
		{"  a  b\n     c\n     d e  f", "  a  b c\n     d e  f"},
		{"  one\n  two", "  one\n  two"},
		{"text\n  code here\ntext", "text\n  code\n  here\ntext"},
		{"é é é é é", "é é é é\né"},
	} {
		if got := Wrap(c.text, 8); got != c.want {
			t.Errorf("Wrap(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}
