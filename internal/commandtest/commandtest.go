// Package commandtest builds and runs this module's commands in tests, as processes of
// their own.
package commandtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/testenv"
)

// Program is a built command.
type Program struct {
	Name string
	path string
}

// Main is a TestMain: it builds the command in the working directory, under the name
// of that directory, hands it to use, and runs the tests. It returns the exit code.
func Main(m *testing.M, use func(*Program)) int {
	folder, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p := &Program{Name: filepath.Base(folder)}
	dir, err := os.MkdirTemp("", p.Name+"-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	p.path = filepath.Join(dir, p.Name)
	// Without tables for debuggers, which take half of the time to link.
	args := []string{"build", "-ldflags=-s -w", "-o", p.path}
	if testenv.RaceDetector { // the command runs under it, too
		args = append(args, "-race")
		// By default a program sleeps for a second when it ends, so that other
		// threads can finish their reports.
		os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=50"))
	}
	build := exec.Command("go", append(args, ".")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build %s: %v\n", p.Name, err)
		return 1
	}
	use(p)
	return m.Run()
}

// Command returns the program with the arguments, not yet started. Variables of the
// environment that begin with its name and an underscore are not passed on. A process
// that hangs is killed before the test binary's deadline.
func (p *Program) Command(t testing.TB, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(testenv.Context(t), p.path, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, strings.ToUpper(p.Name)+"_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// Start starts the program in the background. It is killed with the test.
func (p *Program) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return p.StartCommand(t, p.Command(t, args...))
}

// StartCommand is Start for what Command returned. Standard error is collected,
// unless it goes somewhere else already.
func (p *Program) StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	r := &Process{Name: p.name(cmd), Cmd: cmd, t: t, exited: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.Stderr
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Stdin = stdin
	// Not StdoutPipe, which Wait would close under the reader.
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Stdout, r.Pipe = bufio.NewReader(from), from
	cmd.Stdout = to
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	to.Close()
	go func() {
		cmd.Wait()
		close(r.exited)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-r.exited
		from.Close()
	})
	return r
}

func (p *Program) name(cmd *exec.Cmd) string { return p.Name + " " + strings.Join(cmd.Args[1:], " ") }

// Process is a running program.
type Process struct {
	Name   string // its command line
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Stdout *bufio.Reader
	Stderr Buffer
	Pipe   io.Closer // the reading end of the program's standard output, under Stdout

	t      testing.TB
	exited chan struct{}
}

// Line returns the next line of standard output, without its end.
func (p *Process) Line() string {
	p.t.Helper()
	line, err := p.Stdout.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%s: no more output (%v); exit code %d; stderr: %s", p.Name, err, p.Wait(), p.Stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.Name, err)
	}
}

// Exited returns a channel that is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait returns the exit code; -1 if a signal ended it.
func (p *Process) Wait() int {
	<-p.exited
	return p.Cmd.ProcessState.ExitCode()
}

// Await waits until standard error matches a pattern, and returns the match and its
// groups.
func (p *Process) Await(pattern string) []string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	for {
		written := p.Stderr.Written()
		if m := expression.FindStringSubmatch(p.Stderr.String()); m != nil {
			return m
		}
		select {
		case <-written:
		case <-p.exited:
			if m := expression.FindStringSubmatch(p.Stderr.String()); m != nil {
				return m
			}
			p.t.Fatalf("%s: exit code %d: %s", p.Name, p.Wait(), p.Stderr.String())
		}
	}
}

var endpoint = regexp.MustCompile(`(?:tcp|ipc|inproc)://[^\s,]+`)

// Ready waits for the line that says that a device is ready, and returns the
// endpoints in it.
func (p *Process) Ready() []string {
	p.t.Helper()
	return endpoint.FindAllString(p.Await(`(?m)^.*\bready\b.*\n`)[0], -1)
}

// Outcome is how a run of the program ended.
type Outcome struct {
	Name        string // its command line
	Out, Stderr string
	Code        int
}

// Try runs the program to its end.
func (p *Program) Try(t testing.TB, args ...string) Outcome {
	t.Helper()
	return p.TryInput(t, "", args...)
}

// TryInput is Try with something on standard input.
func (p *Program) TryInput(t testing.TB, input string, args ...string) Outcome {
	t.Helper()
	cmd := p.Command(t, args...)
	cmd.Stdin = strings.NewReader(input)
	return p.TryCommand(t, cmd)
}

// TryCommand is Try for what Command returned.
func (p *Program) TryCommand(t testing.TB, cmd *exec.Cmd) Outcome {
	t.Helper()
	var out, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Outcome{Name: p.name(cmd), Out: out.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// Must runs the program, which has to succeed, and returns its output.
func (p *Program) Must(t testing.TB, args ...string) string {
	t.Helper()
	return p.MustInput(t, "", args...)
}

// MustInput is Must with something on standard input.
func (p *Program) MustInput(t testing.TB, input string, args ...string) string {
	t.Helper()
	o := p.TryInput(t, input, args...)
	if o.Code != 0 {
		t.Fatalf("%s: exit code %d: %s", o.Name, o.Code, o.Stderr)
	}
	return o.Out
}

// Expect checks an exit code, and that standard error has the text in it.
func (o Outcome) Expect(t testing.TB, code int, stderr string) {
	t.Helper()
	if o.Code != code || !strings.Contains(o.Stderr, stderr) {
		t.Errorf("%s: exit code %d, stderr %q; want %d and %q", o.Name, o.Code, o.Stderr, code, stderr)
	}
	if program, _, _ := strings.Cut(o.Name, " "); code != 0 && !strings.HasPrefix(o.Stderr, program+": ") {
		t.Errorf("%s: stderr %q does not begin with the command's name", o.Name, o.Stderr)
	}
}

// Object parses a JSON line.
func Object(t testing.TB, line string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return o
}

// Buffer is a buffer that one goroutine fills while another looks.
type Buffer struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	signal chan struct{} // closed at the next write
}

// Write appends to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal != nil {
		close(b.signal)
		b.signal = nil
	}
	return b.buf.Write(p)
}

// String returns what was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Written returns a channel that is closed at the next write. To miss nothing,
// ask for it before looking.
func (b *Buffer) Written() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal == nil {
		b.signal = make(chan struct{})
	}
	return b.signal
}
