package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// The environment variables that stand for flags about keys.
const (
	keyVariable       = "CHP_CURVE_KEY"
	serverKeyVariable = "CHP_CURVE_SERVER_KEY"
	allowVariable     = "CHP_CURVE_ALLOW"
)

// tested is chp, built by TestMain.
var tested *commandtest.Program

func TestMain(m *testing.M) {
	os.Exit(commandtest.Main(m, func(p *commandtest.Program) { tested = p }))
}

// process is a running chp.
type process struct {
	*commandtest.Process
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	pipe   io.Closer // under stdout
	stderr *testenv.Buffer
	waited <-chan struct{} // closed when it has ended
}

// program returns chp with the arguments, not yet started.
func program(t *testing.T, args ...string) *exec.Cmd { return tested.Command(t, args...) }

// start starts chp in the background. It is killed with the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, program(t, args...))
}

// startCommand starts a command; its standard error is collected, unless it goes
// to a file already.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := tested.StartCommand(t, cmd)
	return &process{p, t, cmd, p.Stdin, p.Stdout, p.Pipe, &p.Stderr, p.Exited()}
}

// line returns the next line of standard output, without its end.
func (p *process) line() string { p.t.Helper(); return p.Line() }

func (p *process) name() string { return p.Name }

// signal sends a signal.
func (p *process) signal(s os.Signal) { p.t.Helper(); p.Signal(s) }

// next returns the port after one.
func next(port string) string {
	n, _ := strconv.Atoi(port)
	return strconv.Itoa(n + 1)
}

// wait returns the exit code; -1 if a signal ended it.
func (p *process) wait() int { return p.Wait() }

// outcome is how a run of chp ended.
type outcome struct {
	name        string
	out, stderr string
	code        int
}

// try runs chp to its end.
func try(t *testing.T, args ...string) outcome { return tryInput(t, "", args...) }

// tryInput is try with text on standard input.
func tryInput(t *testing.T, input string, args ...string) outcome {
	t.Helper()
	cmd := program(t, args...)
	cmd.Stdin = strings.NewReader(input)
	return runCommand(t, cmd)
}

func runCommand(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	o := tested.TryCommand(t, cmd)
	return outcome{o.Name, o.Out, o.Stderr, o.Code}
}

// must runs chp, which has to succeed, and returns its output.
func must(t *testing.T, args ...string) string { t.Helper(); return tested.Must(t, args...) }

func mustInput(t *testing.T, input string, args ...string) string {
	t.Helper()
	return tested.MustInput(t, input, args...)
}

// expect checks an exit code, and that standard error has the text in it.
func (o outcome) expect(t *testing.T, code int, stderr string) {
	t.Helper()
	commandtest.Outcome{Name: o.name, Out: o.out, Stderr: o.stderr, Code: o.code}.Expect(t, code, stderr)
}

// server is a running chp serve.
type server struct {
	*process
	endpoint string // for --server
}

var readyLine = regexp.MustCompile(`(?m)^.*ready.* (tcp://\S+:\d+).* (tcp://\S+:\d+).* (tcp://\S+:\d+)(?:"})?$`)

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
		written := p.stderr.Written()
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
	return commandtest.Object(t, line)
}
