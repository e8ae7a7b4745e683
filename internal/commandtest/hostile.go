package commandtest

import (
	"strings"
	"testing"
	"unicode/utf8"

	"clustermap/internal/visible"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// forged is what a line begins with that only a peer can have written.
const forged = "forged: "

// Hostile is text of a peer that wants to be more than text: a line of its own, a title of
// the window, colours, text in another order, and bytes that are not UTF-8. HostileText is
// the same in UTF-8.
const (
	Hostile     = HostileText + "\xff\x9b31m\xe2\x80"
	HostileText = "\x1b]0;title\x07\x1b[31mred\x7f\r\n" + forged + "line\n" + forged + "another\t\u009b31m\u0085\u202etxt\u2066\u200f\u061c\u2028" + forged + "third\u2029"
)

// Harmless checks that text has no control characters but ends of lines, nor a line that
// only a peer can have written.
func Harmless(t testing.TB, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, forged) {
			t.Errorf("%s: a forged line: %q", what, line)
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !visible.Is(r) }) {
			t.Errorf("%s: raw control characters: %q", what, line)
			return
		}
	}
}

// EachCommand calls run for each command below root that can be run, once without and
// once with each of its flags that take no value.
func EachCommand(root *cobra.Command, run func(cmd *cobra.Command, path []string, flag string)) {
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		subs := cmd.Commands()
		for _, sub := range subs {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
		if len(subs) > 0 || cmd.Hidden {
			return
		}
		run(cmd, path, "")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				run(cmd, path, "--"+f.Name)
			}
		})
	}
	walk(root, nil)
}

// Operands returns a value for each argument that the use line of a command names: what
// value returns for its name, such as "KEY".
func Operands(cmd *cobra.Command, value func(name string) string) []string {
	var all []string
	names, _, _ := strings.Cut(cmd.Use, "(")
	for _, name := range strings.Fields(names)[1:] {
		if name = strings.Trim(name, "[].|-"); name != "" && strings.ToUpper(name) == name {
			name, _, _ = strings.Cut(name, "|")
			all = append(all, value(name))
		}
	}
	return all
}
