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

// ErrExited is what a wait returns when the program has ended.
var ErrExited = errors.New("the program has ended")

// Op is a command to a program: "op" and the operation's arguments by name.
type Op map[string]any

// Event is what a program tells of its own accord.
type Event struct {
	Name string          // such as "ready"
	Body json.RawMessage // the whole line
}

// Process is a running program. Its methods may be called from any goroutine,
// but those without an error result end the test when they fail and belong
// into the test's own one.
type Process struct {
	// Endpoint is what zmq_peer.py last bound or connected to when it began,
	// with the port that was chosen where it was left open.
	Endpoint string
	// Port is the first of the three ports of clone_server.py (RFC 12's P).
	Port int

	t      testing.TB
	name   string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the program is gone and its output read

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

// Python starts a program and waits for its event "ready". script is the name
// of one that this package brings along, or the path of a file of the test's
// own, which may import the module lines as they do. What it writes to stderr
// goes to the test's log. It is killed and awaited when the test ends.
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
	// -B: compiled modules would be written while the folder is removed.
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
		// Wait closes the pipes, so both must be read to their ends before.
		readers.Wait()
		cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// forward logs what the program writes to stderr.
func (p *Process) forward(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.t.Logf("%s[%d]: %s", p.name, p.cmd.Process.Pid, lines.Text())
	}
	// A line too long for the scanner must not block the program either.
	io.Copy(io.Discard, stderr)
}

// dispatch hands each line to the call that waits for it.
func (p *Process) dispatch(stdout io.Reader) {
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // the rest of a line that a killed program left behind
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

// Pending is a command that was sent and may not be answered yet.
type Pending struct {
	p     *Process
	op    any
	reply chan reply // holds one, so that the sender never waits
	err   error
}

// Start sends a command and does not wait for its answer, so that the test can
// play its own part meanwhile. The programs that serve one command at a time
// keep their order.
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
	// A failed write means that the program is going, and dispatch answers then.
	p.stdin.Write(append(text, '\n'))
	return c
}

// Wait decodes the answer into result, if that is not nil, or returns the
// error the program answered with, ErrExited, or ctx's.
func (c *Pending) Wait(ctx context.Context, result any) error {
	if c.err != nil {
		return c.err
	}
	select {
	case r := <-c.reply:
		c.reply <- r // so that a second Wait has it as well
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

// Call is Start and Done.
func (p *Process) Call(op Op, result any) {
	p.t.Helper()
	p.Start(op).Done(result)
}

// Next takes the next event of that name off the queue and waits for it if
// need be. Events of other names stay there.
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

// Event is Next with the event's line decoded into result. It ends the test on
// any error.
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

// Kill ends the program as a crash would (SIGKILL), and waits until it is
// gone. Its sockets are then closed by the system. It may be called twice.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.exited
	p.stdin.Close()
}

// Exited is closed once the program is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

func (p *Process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("interop: %s: %v: %v", p.name, s, err)
	}
}
