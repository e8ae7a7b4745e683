package command

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"clustermap/internal/visible"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// output is standard output or standard error. What a command prints with OutOrStdout and
// ErrOrStderr passes it, so that no text of a peer reaches a terminal or a log with its
// control characters: see package visible. Only the ends of lines and tabs are left.
type output struct {
	w     io.Writer
	lines bool // each write is complete, so that several goroutines can write: standard error

	records atomic.Bool // see LogFormat

	mu   sync.Mutex
	rest []byte // the beginning of a character, whose end is in the next write
	err  error  // the first error, because cobra ignores errors when it prints help texts
}

// kept are the control characters that an output does not escape.
const kept = "\n\t"

// Write writes the escaped text.
func (o *output) Write(b []byte) (int, error) {
	if o.records.Load() && !bytes.HasPrefix(b, []byte("{")) {
		return leveled{o, slog.LevelInfo}.Write(b)
	}
	if err := o.write(o.escape(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// LogFormat is the flag of commands that log. With "json" their standard error is one JSON object
// per line, from the first one on, errors of the command line included: what is not an object, as
// a logger's lines are, is written as one with the text as its msg, and the level INFO if it does
// not pass leveled.
const LogFormat = "log-format"

// wantsJSON reports whether arguments, of which some may be invalid, say that.
func wantsJSON(args []string) (yes bool) {
	for i, arg := range args {
		switch {
		case arg == "--":
			return yes
		case arg == "--"+LogFormat && i+1 < len(args):
			yes = args[i+1] == "json"
		case strings.HasPrefix(arg, "--"+LogFormat+"="):
			yes = arg == "--"+LogFormat+"=json"
		}
	}
	return yes
}

// leveled is standard error for texts that are of another level than INFO if they become
// records of a log.
type leveled struct {
	*output
	level slog.Level
}

// Write writes the escaped text, or its lines as records.
func (l leveled) Write(b []byte) (int, error) {
	if !l.records.Load() {
		return l.output.Write(b)
	}
	var all bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&all, nil))
	for line := range bytes.Lines(b) {
		if text := bytes.TrimSpace(line); len(text) > 0 {
			log.Log(context.Background(), l.level, string(text))
		}
	}
	return len(b), l.write(l.escape(all.Bytes()))
}

// escape returns what to write for b.
func (o *output) escape(b []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := b
	if len(o.rest) > 0 {
		text = append(o.rest, b...)
		o.rest = nil
	}
	if whole := wholeRunes(text); !o.lines && whole < len(text) {
		o.rest = append(o.rest, text[whole:]...)
		text = text[:whole]
	}
	if plain(text) {
		return text
	}
	return visible.Append(make([]byte, 0, len(text)+len(text)/8), text, kept)
}

// wholeRunes returns the length of text without the incomplete character at its end.
func wholeRunes(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}

// plain reports whether text has only printable ASCII, ends of lines and tabs.
func plain(text []byte) bool {
	for _, c := range text {
		if (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

func (o *output) write(b []byte) error {
	_, err := o.w.Write(b)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return err
}

// finish writes what is left, and returns the first error of the output.
func (o *output) finish() error {
	o.mu.Lock()
	rest := visible.Append(nil, o.rest, kept)
	o.rest = nil
	o.mu.Unlock()
	if len(rest) > 0 {
		_ = o.write(rest)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// exact is an output without its escapes.
type exact struct{ *output }

func (e exact) Write(b []byte) (int, error) {
	if err := e.write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Exact returns the writer for bytes that must not be escaped, such as what a program
// prints that the user has named. w is OutOrStdout or ErrOrStderr of a command.
func Exact(w io.Writer) io.Writer {
	switch o, ok := w.(*output); {
	case !ok:
		return w
	case o.lines:
		return o.w // without a goroutine that copies what a program prints
	default:
		return exact{o}
	}
}

// Values returns the standard output for values that the user has asked for: their bytes,
// unless a person would see them on a terminal. With raw they are exact there, too.
func Values(cmd *cobra.Command, raw bool) io.Writer {
	out := cmd.OutOrStdout()
	if Terminal(out) != nil && !raw {
		return out
	}
	return Exact(out)
}

// Terminal returns the terminal that w writes to, or nil. w is OutOrStdout or ErrOrStderr
// of a command.
func Terminal(w io.Writer) *os.File {
	if file := fileOf(w); file != nil && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// fileOf returns the file that w writes to, or nil.
func fileOf(w io.Writer) *os.File {
	switch o := w.(type) {
	case *output:
		w = o.w
	case exact:
		w = o.w
	}
	file, _ := w.(*os.File)
	return file
}
