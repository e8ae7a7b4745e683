package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"clustermap/internal/loopback"
)

// The environment variables that stand for flags about keys.
const (
	keyVariable       = "CHP_CURVE_KEY"
	serverKeyVariable = "CHP_CURVE_SERVER_KEY"
	allowVariable     = "CHP_CURVE_ALLOW"
)

// binary is the command under test, built by TestMain.
var binary string

// guard ends a process that hangs. No test waits for it.
const guard = 2 * time.Minute

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chp-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "chp")
	args := []string{"build", "-o", binary}
	if raceEnabled() {
		args = append(args, "-race")
		// By default a program sleeps for a second when it ends, so that other
		// threads can finish their reports.
		os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=50"))
	}
	build := exec.Command("go", append(args, ".")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot build chp:", err)
		return 1
	}
	return m.Run()
}

// raceEnabled tells whether the tests run under the race detector; then the
// command does, too.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" {
			return true
		}
	}
	return false
}

// process is a running chp.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	pipe   io.Closer // under stdout
	stderr lockedBuffer
	waited chan struct{} // closed when it has ended
}

// program returns chp with the arguments, not yet started.
func program(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = os.Environ()
	for i, v := range cmd.Env {
		for _, ours := range []string{serverVariable, keyVariable, serverKeyVariable, allowVariable} {
			if strings.HasPrefix(v, ours+"=") {
				cmd.Env[i] = ours + "="
			}
		}
	}
	return cmd
}

// start starts chp in the background. It is killed with the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, program(t, args...))
}

// startCommand starts a command; its standard error is collected, unless it goes
// to a file already.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, waited: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.stderr
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	// Not StdoutPipe, which Wait would close under the reader.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout, p.pipe = bufio.NewReader(r), r
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		cmd.Wait()
		close(p.waited)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.waited
		r.Close()
	})
	return p
}

// line returns the next line of standard output, without its end.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		<-p.waited
		p.t.Fatalf("%s: no more output (%v); exit code %d; stderr: %s", p.name(), err, p.cmd.ProcessState.ExitCode(), p.stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *process) name() string { return "chp " + strings.Join(p.cmd.Args[1:], " ") }

// signal sends a signal.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name(), err)
	}
}

// wait returns the exit code; -1 if a signal ended it.
func (p *process) wait() int {
	<-p.waited
	return p.cmd.ProcessState.ExitCode()
}

// outcome is how a run of chp ended.
type outcome struct {
	name        string
	out, stderr string
	code        int
}

// try runs chp to its end.
func try(t *testing.T, args ...string) outcome { return tryInput(t, "", args...) }

// tryInput is try with something on standard input.
func tryInput(t *testing.T, input string, args ...string) outcome {
	t.Helper()
	cmd := program(t, args...)
	cmd.Stdin = strings.NewReader(input)
	return runCommand(t, cmd)
}

func runCommand(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{
		name: "chp " + strings.Join(cmd.Args[1:], " "),
		out:  out.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode(),
	}
}

// must runs chp, which has to succeed, and returns its output.
func must(t *testing.T, args ...string) string { t.Helper(); return mustInput(t, "", args...) }

func mustInput(t *testing.T, input string, args ...string) string {
	t.Helper()
	o := tryInput(t, input, args...)
	if o.code != exitDone {
		t.Fatalf("%s: exit code %d: %s", o.name, o.code, o.stderr)
	}
	return o.out
}

// expect checks an exit code, and that standard error has the text in it.
func (o outcome) expect(t *testing.T, code int, stderr string) {
	t.Helper()
	if o.code != code || !strings.Contains(o.stderr, stderr) {
		t.Errorf("%s: exit code %d, stderr %q; want %d and %q", o.name, o.code, o.stderr, code, stderr)
	}
	if code != exitDone && !strings.HasPrefix(o.stderr, "chp: ") {
		t.Errorf("%s: stderr %q does not begin with the command's name", o.name, o.stderr)
	}
}

// server is a running chp serve.
type server struct {
	*process
	endpoint string // for --server
}

var readyLine = regexp.MustCompile(`(?m)^.*ready.* (tcp://\S+:\d+).* (tcp://\S+:\d+).* (tcp://\S+:\d+)$`)

// serve starts a server on free ports, or as the arguments say, and waits until
// it is ready.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	p := start(t, append([]string{"serve", "--port", "0"}, args...)...)
	return &server{process: p, endpoint: p.ready()}
}

// serveApart is serve on an address of its own, for a server that ends under
// clients which go on dialling it.
func serveApart(t *testing.T, args ...string) *server {
	t.Helper()
	return serve(t, append([]string{"--host", loopback.Own()}, args...)...)
}

// host returns the address without the port.
func (s *server) host() string {
	return strings.TrimPrefix(s.endpoint[:strings.LastIndexByte(s.endpoint, ':')], "tcp://")
}

// ready waits until a server is ready and returns its endpoint.
func (p *process) ready() string {
	p.t.Helper()
	for {
		written := p.stderr.written()
		if m := readyLine.FindStringSubmatch(p.stderr.String()); m != nil {
			return m[1]
		}
		select {
		case <-written:
		case <-p.waited:
			p.t.Fatalf("%s: exit code %d: %s", p.name(), p.wait(), p.stderr.String())
		}
	}
}

// port returns the first port as text.
func (s *server) port() string { return s.endpoint[strings.LastIndexByte(s.endpoint, ':')+1:] }

// object parses a JSON line.
func object(t *testing.T, line string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return o
}
