package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The output is the same however it is cut into writes, and text of every language passes.
func TestOutput(t *testing.T) {
	t.Parallel()
	const text = "ünï \U0001F600\t日本\n\x1b[31m\u009b\u202e\u2028\r\xff\xe2\x80\nend\xf0\x9f"
	const want = "ünï \U0001F600\t日本\n" + `\u001b[31m\u009b\u202e\u2028\u000d\xff\xe2\x80` + "\nend" + `\xf0\x9f`
	for size := 1; size <= len(text); size++ {
		var b bytes.Buffer
		o := &output{w: &b}
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			part := rest[:min(size, len(rest))]
			if n, err := o.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := o.finish(); err != nil || b.String() != want {
			t.Fatalf("in parts of %d: %q, %v", size, b.String(), err)
		}
		b.Reset()
		_, _ = Exact(o).Write([]byte(text))
		if b.String() != text {
			t.Fatalf("%q", b.String())
		}
	}
}

// Joined errors are on lines of their own, and no line is a peer's.
func TestErrorText(t *testing.T) {
	t.Parallel()
	hostile := errors.New("no\nchp: ready\x1b")
	for want, err := range map[string]error{
		`no\u000achp: ready\u001b`:               hostile,
		`refused: no\u000achp: ready\u001b`:      Fail(ExitRefused, "refused: %w", hostile),
		"one | no\\u000achp: ready\\u001b":       &Error{ExitRefused, errors.Join(errors.New("one"), hostile)},
		`EOF: no\u000achp: ready\u001b`:          fmt.Errorf("%w: %w", io.EOF, hostile),
		"one | two | no\\u000achp: ready\\u001b": errors.Join(errors.New("one"), errors.Join(errors.New("two"), hostile)),
	} {
		if got := ErrorText(err, " | "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestUnknownCommand: what a mistyped command prints is plain lines of text.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "tool"}
	root.AddCommand(&cobra.Command{Use: "serve", RunE: func(*cobra.Command, []string) error { return nil }})
	for args, want := range map[string]string{
		"serv":     "tool: unknown command \"serv\" for \"tool\"; did you mean serve?\nsee: tool --help\n",
		"x\x1b[2J": "tool: unknown command \"x\\x1b[2J\" for \"tool\"\nsee: tool --help\n",
	} {
		var out, err bytes.Buffer
		if code := execute(t.Context(), root, []string{args}, streams{strings.NewReader(""), &out, &err}); code != ExitUsage || err.String() != want || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %q, %q; want %q", args, code, err.String(), out.String(), want)
		}
	}
}
