package main

import (
	"strings"
	"testing"

	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
)

// until reads what a program writes on a terminal until it has written a text.
func until(t *testing.T, p *commandtest.Terminal, text string) string {
	t.Helper()
	var all strings.Builder
	b := make([]byte, 4096)
	for !strings.Contains(all.String(), text) {
		n, err := p.Read(b)
		all.Write(b[:n])
		if err != nil {
			t.Fatalf("no %q in %q: %v", text, all.String(), err)
		}
	}
	return all.String()
}

// On a terminal top shows rates, hot keys and clients anew at each interval, until q: then the
// terminal is as it was.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := start(t, "watch", "/a/", "--server", s.endpoint)
	w.line()
	p := commandtest.OnTerminal(t, program(t, "top", "--interval", "50ms", "--server", s.endpoint))
	until(t, p, "\x1b[?1049h") // the other screen
	until(t, p, "HOT KEY")
	until(t, p, "  /a/")
	for i := 0; ; i++ {
		must(t, "set", "/hot", "v", "--server", s.endpoint)
		if i < 3 {
			continue
		}
		b := make([]byte, 1<<16)
		n, err := p.Read(b)
		testenv.Must(t, err)
		if strings.Contains(string(b[:n]), "  /hot") {
			break
		}
	}
	_, err := p.WriteString("s")
	testenv.Must(t, err)
	until(t, p, "sort clients by: in")
	_, err = p.WriteString("p")
	testenv.Must(t, err)
	until(t, p, "paused")
	_, err = p.WriteString("q")
	testenv.Must(t, err)
	if rest, code := p.Rest(); code != exitDone || !strings.Contains(rest, "\x1b[?1049l") {
		t.Errorf("exit code %d: %q", code, rest)
	}
}

// It needs a server and a terminal.
func TestTopRefuses(t *testing.T) {
	t.Parallel()
	s := serve(t)
	try(t, "top", "--server", s.endpoint).expect(t, exitUsage, "chp top needs a terminal")
	try(t, "top", "--interval", "0s", "--server", s.endpoint).expect(t, exitUsage, "--interval 0s")
	rest, code := commandtest.OnTerminal(t, program(t, "top", "--server", "tcp://127.0.0.1:1")).Rest()
	if code != exitNoServer || !strings.Contains(rest, "no server answered") || strings.Contains(rest, "\x1b") {
		t.Errorf("exit code %d: %q", code, rest)
	}
}
