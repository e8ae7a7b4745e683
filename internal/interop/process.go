package interop

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/testenv"
)

//go:embed python/*.py
var programs embed.FS

// ErrExited is returned by a wait if the program has ended.
var ErrExited = errors.New("the program has ended")

// Op is a command to a program: "op" and the operation's arguments by name.
type Op map[string]any

// Event is an event reported by a program.
type Event struct {
	Name string          // such as "ready"
	Body json.RawMessage // the whole line
}

// Process is a running program. Its methods may be called from any goroutine,
// except that methods without an error result end the test when they fail and must
// be called from the test's own goroutine.
type Process struct {
	// Endpoint is the endpoint that zmq_peer.py last bound or connected to when
	// it started, with the actual port.
	Endpoint string
	// Port is the first of the three ports of clone_server.py (P in RFC 12).
	Port int

	t      testing.TB
	name   string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the program has ended and its output was read

	write sync.Mutex // held for one line
	stdin io.WriteCloser

	mu      sync.Mutex
	number  int
	waiting map[int]chan reply
	events  []Event
	more    chan struct{} // closed and replaced with each event
}

type reply struct {
	line []byte
	err  error
}

// Python starts a program and waits for its event "ready". script is the name of a
// program of this package, or the path of another file, which may import the module
// lines. The program's standard error goes to the test's log. The program is killed
// when the test ends.
func Python(t testing.TB, script string, args ...string) *Process {
	t.Helper()
	Require(t)
	p, err := start(t, script, args)
	if err != nil {
		t.Fatalf("interop: start %s: %v", script, err)
	}
	t.Cleanup(p.Kill)
	var ready struct {
		Endpoint string
		Port     int
	}
	p.Event("ready", &ready)
	p.Endpoint, p.Port = ready.Endpoint, ready.Port
	return p
}

func start(t testing.TB, script string, args []string) (*Process, error) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, programs); err != nil {
		return nil, err
	}
	modules := filepath.Join(dir, "python")
	path := script
	if filepath.Base(script) == script {
		path = filepath.Join(modules, script)
	}
	// -B: otherwise Python might write compiled modules while the folder is removed.
	cmd := exec.Command(python, append([]string{"-B", path}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+modules)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{
		t:       t,
		name:    strings.TrimSuffix(filepath.Base(script), ".py"),
		cmd:     cmd,
		exited:  make(chan struct{}),
		stdin:   stdin,
		waiting: make(map[int]chan reply),
		more:    make(chan struct{}),
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.forward(stderr) })
	readers.Go(func() { p.dispatch(stdout) })
	go func() {
		// Wait closes the pipes, so both must be read to the end first.
		readers.Wait()
		cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// forward logs the program's standard error.
func (p *Process) forward(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.t.Logf("%s[%d]: %s", p.name, p.cmd.Process.Pid, lines.Text())
	}
	// A line that is too long for the scanner must not block the program.
	io.Copy(io.Discard, stderr)
}

// dispatch passes each line to the call that waits for it.
func (p *Process) dispatch(stdout io.Reader) {
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // ignore a partial line of a killed program
		}
		p.take(line)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.waiting {
		c <- reply{err: ErrExited}
	}
	p.waiting = nil
	close(p.more)
	p.more = nil
}

func (p *Process) take(line []byte) {
	var head struct {
		ID    *int   `json:"id"`
		Error string `json:"error"`
		Event string `json:"event"`
	}
	err := json.Unmarshal(line, &head)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil || head.ID == nil && head.Event == "":
		p.t.Logf("%s[%d]: not a line of the protocol: %.200q", p.name, p.cmd.Process.Pid, line)
	case head.ID == nil:
		p.events = append(p.events, Event{head.Event, line})
		close(p.more)
		p.more = make(chan struct{})
	default:
		c := p.waiting[*head.ID]
		delete(p.waiting, *head.ID)
		if c == nil {
			return // its caller has given up
		}
		r := reply{line: line}
		if head.Error != "" {
			r.err = errors.New(head.Error)
		}
		c <- r
	}
}

// Pending is a command that was sent, answered or not.
type Pending struct {
	p     *Process
	op    any
	reply chan reply // capacity 1, so that the sender never waits
	err   error
}

// Start sends a command and does not wait for its answer. Programs that execute one
// command at a time keep the order of the commands.
func (p *Process) Start(op Op) *Pending {
	c := &Pending{p: p, op: op["op"], reply: make(chan reply, 1)}
	line := make(map[string]any, len(op)+1)
	for name, value := range op {
		line[name] = value
	}
	p.mu.Lock()
	if p.waiting == nil {
		p.mu.Unlock()
		c.err = ErrExited
		return c
	}
	p.number++
	line["id"] = p.number
	p.waiting[p.number] = c.reply
	p.mu.Unlock()

	text, err := json.Marshal(line)
	if err != nil {
		c.err = err
		return c
	}
	p.write.Lock()
	defer p.write.Unlock()
	// If the write fails, the program is ending, and dispatch will answer.
	p.stdin.Write(append(text, '\n'))
	return c
}

// Wait waits for the answer and decodes it into result, if that is not nil. The error
// is that of the program's answer, ErrExited, or that of ctx.
func (c *Pending) Wait(ctx context.Context, result any) error {
	if c.err != nil {
		return c.err
	}
	select {
	case r := <-c.reply:
		c.reply <- r // for a second Wait
		if r.err != nil || result == nil {
			return r.err
		}
		return json.Unmarshal(r.line, result)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done waits for the answer and decodes it into result, if that is not nil. It
// ends the test on any error.
func (c *Pending) Done(result any) {
	c.p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Hang)
	defer cancel()
	if err := c.Wait(ctx, result); err != nil {
		c.p.t.Fatalf("interop: %s: %v: %v", c.p.name, c.op, err)
	}
}

// Call calls Start and Done.
func (p *Process) Call(op Op, result any) {
	p.t.Helper()
	p.Start(op).Done(result)
}

// Next waits for the next event with the given name and removes it from the queue.
// Other events stay in the queue.
func (p *Process) Next(ctx context.Context, name string) (Event, error) {
	for {
		p.mu.Lock()
		for i, e := range p.events {
			if e.Name == name {
				p.events = append(p.events[:i:i], p.events[i+1:]...)
				p.mu.Unlock()
				return e, nil
			}
		}
		more := p.more
		p.mu.Unlock()
		if more == nil {
			return Event{}, fmt.Errorf("no event %q: %w", name, ErrExited)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, fmt.Errorf("no event %q: %w", name, ctx.Err())
		}
	}
}

// Event is like Next, but decodes the event into result, if that is not nil, and ends
// the test on any error.
func (p *Process) Event(name string, result any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Hang)
	defer cancel()
	e, err := p.Next(ctx, name)
	if err == nil && result != nil {
		err = json.Unmarshal(e.Body, result)
	}
	if err != nil {
		p.t.Fatalf("interop: %s: %v", p.name, err)
	}
}

// Kill ends the program like a crash (SIGKILL) and waits until it has ended. The
// system closes its sockets. Kill may be called twice.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.exited
	p.stdin.Close()
}

// Exited returns a channel that is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

func (p *Process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("interop: %s: %v: %v", p.name, s, err)
	}
}
