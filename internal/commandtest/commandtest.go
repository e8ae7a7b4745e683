// Package commandtest builds this module's commands and runs them in tests.
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
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"clustermap/internal/testenv"

	"github.com/spf13/cobra"
)

// Program is a built command.
type Program struct {
	name string
	path string
}

// Main implements TestMain: it builds the command in the working directory, which has
// the name of that directory, passes it to use, and runs the tests. It returns the exit
// code.
func Main(m *testing.M, use func(*Program)) int {
	folder, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", filepath.Base(folder)+"-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	p, err := Build(folder, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(p)
	return m.Run()
}

// Build builds the command in a folder, which has the name of that folder, into dir. It may
// be a command of another module.
func Build(folder, dir string) (*Program, error) {
	// Commands would inherit what this process ignores, as under nohup: what it handles they do not.
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	p := &Program{name: filepath.Base(folder)}
	p.path = filepath.Join(dir, p.name)
	// Without debug information, which takes half of the time to link.
	args := []string{"build", "-ldflags=-s -w", "-o", p.path}
	if testenv.RaceDetector { // use it for the command, too
		args = append(args, "-race")
		// By default a program sleeps for a second at exit, so that other threads
		// can finish their reports.
		os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=50"))
	}
	build := exec.Command("go", append(args, ".")...)
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build %s: %w\n%s", p.name, err, out)
	}
	return p, nil
}

// Command returns a command that runs the program with the given arguments. It does not
// pass on environment variables that begin with the program's name and an underscore. A
// process that hangs is killed before the test binary's deadline.
func (p *Program) Command(t testing.TB, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(testenv.Context(t), p.path, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, strings.ToUpper(p.name)+"_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// Not the user's configuration, but none.
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+filepath.Join(filepath.Dir(p.path), "config"))
	return cmd
}

// Start starts the program in the background. It is killed with the test.
func (p *Program) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return p.StartCommand(t, p.Command(t, args...))
}

// StartCommand is like Start for a result of Command. It collects standard error unless
// cmd.Stderr is set.
func (p *Program) StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	r := &Process{Name: p.line(cmd), Cmd: cmd, t: t, exited: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.Stderr
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Stdin = stdin
	// Not StdoutPipe, because Wait would close it before it was read.
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Stdout, r.Pipe = bufio.NewReader(from), from
	cmd.Stdout = to
	if err := testenv.Launch(cmd); err != nil {
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

func (p *Program) line(cmd *exec.Cmd) string { return p.name + " " + strings.Join(cmd.Args[1:], " ") }

// Process is a running program.
type Process struct {
	Name   string // its command line
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Stdout *bufio.Reader
	Stderr testenv.Buffer
	Pipe   io.Closer // the pipe that Stdout reads

	t      testing.TB
	exited chan struct{}
}

// Line returns the next line of standard output, without its newline.
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

// Wait waits until the program has ended and returns its exit code, or -1 if a signal
// ended it.
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

// Ready waits for the line that reports that a device is ready, and returns the
// endpoints in it.
func (p *Process) Ready() []string {
	p.t.Helper()
	return endpoint.FindAllString(p.Await(`(?m)^.*\bready\b.*\n`)[0], -1)
}

// Outcome is the result of a run of the program.
type Outcome struct {
	Name        string // its command line
	Out, Stderr string
	Code        int
}

// Try runs the program to its end.
func (p *Program) Try(t testing.TB, args ...string) Outcome {
	t.Helper()
	return p.tryInput(t, "", args...)
}

// tryInput is like Try with the given standard input.
func (p *Program) tryInput(t testing.TB, input string, args ...string) Outcome {
	t.Helper()
	cmd := p.Command(t, args...)
	cmd.Stdin = strings.NewReader(input)
	return p.TryCommand(t, cmd)
}

// TryCommand is like Try for a result of Command.
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
	return Outcome{Name: p.line(cmd), Out: out.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// Must runs the program, which must succeed, and returns its output.
func (p *Program) Must(t testing.TB, args ...string) string {
	t.Helper()
	return p.MustInput(t, "", args...)
}

// MustInput is like Must with the given standard input.
func (p *Program) MustInput(t testing.TB, input string, args ...string) string {
	t.Helper()
	o := p.tryInput(t, input, args...)
	if o.Code != 0 {
		t.Fatalf("%s: exit code %d: %s", o.Name, o.Code, o.Stderr)
	}
	return o.Out
}

// HelpWidth checks that the help texts of a command and of those below it have at most 80
// columns. Those of the completion scripts are cobra's.
func (p *Program) HelpWidth(t testing.TB, root *cobra.Command) {
	t.Helper()
	commands := 0
	var walk func(cmd *cobra.Command, path ...string)
	walk = func(cmd *cobra.Command, path ...string) {
		commands++
		for line := range strings.Lines(p.Must(t, append(path, "--help")...)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s %s --help: %d columns: %s", p.name, strings.Join(path, " "), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name())...)
		}
	}
	walk(root)
	if commands < 10 {
		t.Errorf("%d commands were checked", commands)
	}
}

// Expect checks the exit code, and that standard error contains a text.
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
