package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"

	"golang.org/x/sys/unix"
)

// On a terminal del asks before it deletes more than a thousand keys, and takes no answer
// but yes for yes. Elsewhere, and with --yes, it does not ask.
func TestDelAsks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	load := func() {
		t.Helper()
		var lines strings.Builder
		for i := range manyKeys + 1 {
			fmt.Fprintf(&lines, `{"key":"/a/%d","value":"1"}`+"\n", i)
		}
		mustInput(t, lines.String(), "load", "--server", s.endpoint)
	}
	load()
	for _, c := range []struct {
		answer string
		args   []string
		code   int
		rest   string
	}{
		{"n\n", []string{"--prefix", "/a/"}, exitRefused, "chp: nothing was deleted\n"},
		{"\n", []string{"--all"}, exitRefused, "chp: nothing was deleted\n"},
		{"\x04", []string{"--all"}, exitRefused, "chp: nothing was deleted\n"},
		{"yes\n", []string{"--prefix", "/a/"}, exitDone, "1001\n"},
	} {
		p := commandtest.OnTerminal(t, program(t, append([]string{"del", "--server", s.endpoint}, c.args...)...))
		question := p.Until(']')
		if !strings.HasPrefix(question, "chp: delete ") || !strings.Contains(question, " 1001 keys ") {
			t.Errorf("%q", question)
		}
		if _, err := p.WriteString(c.answer); err != nil {
			t.Fatal(err)
		}
		if rest, code := p.Rest(); code != c.code || strings.TrimLeft(rest, " ") != c.rest {
			t.Errorf("%q %q: exit code %d: %q", c.args, c.answer, code, rest)
		}
	}
	load()
	if rest, code := commandtest.OnTerminal(t, program(t, "del", "--all", "--yes", "--server", s.endpoint)).Rest(); code != exitDone || rest != "1001\n" {
		t.Errorf("exit code %d: %q", code, rest)
	}
	load()
	if got := must(t, "del", "--prefix", "/a/", "--server", s.endpoint); got != "1001\n" {
		t.Errorf("%q", got)
	}
}

// A value that is printed on a terminal cannot act on it, unless --raw is given.
func TestGetOnTerminal(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/a", commandtest.Hostile, "--server", s.endpoint)
	rest, code := commandtest.OnTerminal(t, program(t, "get", "/a", "--server", s.endpoint)).Rest()
	if code != exitDone || !strings.HasPrefix(rest, `\u001b]0;title\u0007\u001b[31mred\u007f\u000d`+"\n") || strings.ContainsAny(rest, "\x1b\r\x07\x7f") || strings.Contains(rest, "\u202e") {
		t.Errorf("exit code %d: %q", code, rest)
	}
	rest, code = commandtest.OnTerminal(t, program(t, "get", "--raw", "/a", "--server", s.endpoint)).Rest()
	if code != exitDone || rest != commandtest.Hostile {
		t.Errorf("exit code %d: %q", code, rest)
	}
	if got := must(t, "get", "/a", "--server", s.endpoint); got != commandtest.Hostile+"\n" {
		t.Errorf("%q", got)
	}
}

// On a terminal promote asks first, and takes no answer but yes for yes.
func TestPromoteAsks(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	pair[0].active.Store(nil)
	for _, c := range []struct {
		answer string
		code   int
		rest   string
	}{
		{"n\n", exitRefused, "chp: " + pair[1].endpoint + " was not promoted\n"},
		{"y\n", exitDone, pair[1].endpoint + " is active\n"},
	} {
		p := commandtest.OnTerminal(t, program(t, "promote", "--server", pair[1].endpoint))
		if question := p.Until(']'); !strings.Contains(question, "role primary, state passive, 0 keys") || !strings.Contains(question, "may be lost; promote "+pair[1].endpoint+"?") {
			t.Errorf("%q", question)
		}
		if _, err := p.WriteString(c.answer); err != nil {
			t.Fatal(err)
		}
		if rest, code := p.Rest(); code != c.code || strings.TrimLeft(rest, " ") != c.rest {
			t.Errorf("%q: exit code %d: %q", c.answer, code, rest)
		}
	}
}

// What lasts above a second has a progress bar on a terminal, which is gone at the end.
func TestProgressOnTerminal(t *testing.T) {
	t.Parallel()
	s := serve(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	testenv.Must(t, unix.Mkfifo(fifo, 0o600))
	p := commandtest.OnTerminal(t, program(t, "load", fifo, "--server", s.endpoint))
	in, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	testenv.Must(t, err)
	shown := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer in.Close()
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(in, `{"key":"/%d","value":"1"}`+"\n", i); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-shown:
				return
			default:
				time.Sleep(time.Millisecond)
			}
		}
	}()
	until(t, p, "loading")
	close(shown)
	<-ended
	if rest, code := p.Rest(); code != exitDone || !strings.Contains(rest, "loaded ") {
		t.Errorf("exit code %d: %q", code, rest)
	}
}
