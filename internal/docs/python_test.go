package docs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/internal/interop"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

var programName = regexp.MustCompile("`(\\w+\\.py)`")

// pythonPrograms returns the programs of PYTHON.md by their names, which the text before
// each block has, and fails if another page has a block of Python.
func pythonPrograms(t *testing.T) map[string]string {
	t.Helper()
	text := page(t, "PYTHON.md")
	programs := map[string]string{}
	for _, b := range blocks(t, "python") {
		before, _, found := strings.Cut(text, b.text)
		names := programName.FindAllStringSubmatch(before, -1)
		if b.page != "PYTHON.md" || !found || len(names) == 0 {
			t.Errorf("%s:%d: no test runs this block of Python", b.page, b.line)
			continue
		}
		programs[names[len(names)-1][1]] = b.text
	}
	return programs
}

// A pythonProgram is a program of PYTHON.md that runs until it ends or the test does.
type pythonProgram struct {
	t      *testing.T
	name   string
	stderr bytes.Buffer
	out    *bufio.Scanner
	cmd    *exec.Cmd
}

// startPython starts a program, of which each line that is a key of instead is replaced
// by its value.
func startPython(t *testing.T, name, text string, instead map[string]string) *pythonProgram {
	t.Helper()
	for line, other := range instead {
		if strings.Count(text, "\n"+line) != 1 {
			t.Fatalf("%s does not have the line %s", name, line)
		}
		text = strings.Replace(text, "\n"+line, "\n"+other, 1)
	}
	path := filepath.Join(t.TempDir(), name)
	testenv.Must(t, os.WriteFile(path, []byte(text), 0o600))
	p := &pythonProgram{t: t, name: name, cmd: exec.CommandContext(testenv.Context(t), "/usr/bin/python3", "-u", "-B", path)}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	testenv.Must(t, err)
	p.out = bufio.NewScanner(stdout)
	testenv.Must(t, p.cmd.Start())
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

// next returns the next line.
func (p *pythonProgram) next() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.cmd.Wait()
		p.t.Fatalf("%s ended: %v\n%s", p.name, p.out.Err(), p.stderr.String())
	}
	return p.out.Text()
}

// expect compares the next line with a pattern.
func (p *pythonProgram) expect(pattern string) {
	p.t.Helper()
	if line := p.next(); !regexp.MustCompile("^" + pattern + "$").MatchString(line) {
		p.t.Fatalf("%s printed %q, want %s", p.name, line, pattern)
	}
}

// wait skips lines until one is as given.
func (p *pythonProgram) wait(line string) {
	p.t.Helper()
	for p.next() != line {
	}
}

// TestPythonPrograms runs the programs of PYTHON.md with libzmq against a server: the
// reader sees the keys of its snapshot, the changes of the writer and of others, and
// expiries; it begins again at a server that has restarted.
func TestPythonPrograms(t *testing.T) {
	t.Parallel()
	programs := pythonPrograms(t)
	if names := slices.Sorted(maps.Keys(programs)); !slices.Equal(names, []string{"reader.py", "writer.py"}) {
		t.Fatalf("PYTHON.md has the programs %v", names)
	}
	interop.Require(t)
	ctx := testenv.Context(t)
	host := loopback.Own()
	s, stop := serveForPython(t, host)
	testenv.Must(t, s.Set(ctx, "/config/before", []byte("1")))
	testenv.Must(t, s.Set(ctx, "/other/key", []byte("2")))

	const (
		address  = `HOST, P, SUBTREE = "127.0.0.1"`
		silence  = "SILENCE = 5000"
		patience = "PATIENCE = 5"
	)
	own := fmt.Sprintf("HOST, P, SUBTREE = %q", host)
	// A busy machine shall not look like a server that is away, except to this reader,
	// which may begin again at any time.
	restless := startPython(t, "reader.py", programs["reader.py"], map[string]string{address: own, silence: "SILENCE = 2000"})
	restless.wait("synced [(b'/config/before', b'1')]")
	reader := startPython(t, "reader.py", programs["reader.py"], map[string]string{address: own, silence: "SILENCE = 5000000"})
	reader.expect(`synced \[\(b'/config/before', b'1'\)\]`)
	testenv.Must(t, s.Set(ctx, "/other/key", []byte("3")))
	testenv.Must(t, s.Delete(ctx, "/config/before"))
	reader.expect(`deleted b'/config/before'`)

	writer := startPython(t, "writer.py", programs["writer.py"], map[string]string{
		address: own, patience: "PATIENCE = 1000",
		"        try:": "        PATIENCE = 1\n        try:", // the refused update never comes back
	})
	writer.expect(`set \d+`)
	writer.expect(`set \d+`)
	writer.expect(`deleted \d+`)
	reader.expect(`set b'/config/colour' b'red'`)
	reader.expect(`set b'/config/session' b'42'`)
	reader.expect(`deleted b'/config/colour'`)
	reader.expect(`expired b'/config/session'`)
	writer.expect(`b'/config/session' did not come back: lost or refused`)
	if err := writer.cmd.Wait(); err != nil {
		t.Errorf("writer.py: %v\n%s", err, writer.stderr.String())
	}
	if n := s.Stats().Refused[chp.ReasonTTL]; n != 1 {
		t.Errorf("the server has refused %d updates for their ttl", n)
	}

	stop()
	restless.wait("silent: start over")
	s, stop = serveForPython(t, host)
	defer stop()
	testenv.Must(t, s.Set(ctx, "/config/after", []byte("4")))
	restless.wait("synced [(b'/config/after', b'4')]")
}

// serveForPython serves a new map on the ports 5556 to 5558 of a host. stop ends the server.
func serveForPython(t *testing.T, host string) (s *chp.Server, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(testenv.Context(t))
	s, err := chp.NewServer(chp.ServerOptions{Host: host, Port: 5556})
	testenv.Must(t, err)
	testenv.Must(t, s.Listen(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	return s, func() {
		cancel()
		testenv.Must(t, <-ended)
	}
}
