// Package worker runs a program again as processes of its own, each of which does one task
// and writes values that the parent reads. Tasks, what is told to a worker and the values
// are lines over its standard input and output.
//
// No worker outlives its parent, because a worker ends when its standard input is closed.
package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Role is the work of a worker. It calls say for each value that the parent reads. Its error
// is what the parent reads last.
type Role func(task []byte, say func(value any)) error

// For returns the role whose tasks are of a type.
func For[T any](work func(task T, say func(value any)) error) Role {
	return func(text []byte, say func(any)) error {
		var task T
		if err := json.Unmarshal(text, &task); err != nil {
			return err
		}
		return work(task, say)
	}
}

// ErrMissing is the error of a role that needs something which is not there, such as a
// program that is not installed.
var ErrMissing = errors.New("is missing")

// variable is the environment variable that makes a process a worker. Its value is the
// role. The task, which may have keys, goes through a pipe that no other process reads.
const variable = "CLUSTERMAP_WORKER"

// line is a line that a worker writes.
type line struct {
	Value   json.RawMessage `json:",omitempty"`
	Error   string          `json:",omitempty"`
	Missing bool            `json:",omitempty"`
}

// grace is the time that a worker has to end after its input was closed, if it has asked
// for the Context.
const grace = 5 * time.Second

// Main does the work of a process that is a worker, and ends it. In another process it does
// nothing.
func Main(roles map[string]Role) {
	name, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	_ = os.Unsetenv(variable) // what it starts is no worker
	// An interrupt from the terminal reaches all processes; the parent decides, and ends
	// its workers by closing their input.
	signal.Ignore(os.Interrupt)
	lines := bufio.NewReader(os.Stdin)
	task, err := lines.ReadBytes('\n')
	if err != nil {
		os.Exit(1)
	}
	go listen(lines)
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	say := func(l line) {
		mu.Lock()
		defer mu.Unlock()
		if out.Encode(l) != nil {
			os.Exit(1) // the parent is gone
		}
	}
	role, ok := roles[name]
	if !ok {
		role = func([]byte, func(any)) error { return errors.New("there is no such role") }
	}
	err = role(task, func(value any) {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // every role's values can be encoded
		}
		say(line{Value: text})
	})
	if err != nil {
		say(line{Error: err.Error(), Missing: errors.Is(err, ErrMissing)})
		os.Exit(1)
	}
	// What is open is left to the system: others may be waiting for a figure.
	os.Exit(0)
}

var (
	told        = make(chan string, 16) // what Tell has sent
	ctx, cancel = context.WithCancel(context.Background())
	patient     atomic.Bool // Context was called
)

// listen passes on what is told, and ends this process when the parent is done with it, or
// gone.
func listen(lines *bufio.Reader) {
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		told <- strings.TrimSuffix(text, "\n")
	}
	cancel()
	if patient.Load() {
		time.Sleep(grace)
	}
	os.Exit(1)
}

// Hear waits, in a worker, for a call of Tell, and returns its text. It returns false when the
// Context ends first.
func Hear() (string, bool) {
	select {
	case text := <-told:
		return text, true
	case <-ctx.Done():
		return "", false
	}
}

// Context ends, in a worker, when the parent wants it to end or has ended itself. A role
// that does not ask for it is ended at once.
func Context() context.Context {
	patient.Store(true)
	return ctx
}

// Run is the main function of a command whose work is run: it ends early when it is
// interrupted, and fails with the error.
func Run(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Profile begins a CPU profile into a file, if one is named, which stop ends.
func Profile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// Worker is the parent's end of a worker.
type Worker struct {
	Name string // in errors; by default the role

	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// Start starts a worker, which is killed when ctx ends. wrap is a command, such as taskset
// with arguments, that runs it.
func Start(ctx context.Context, role string, task any, wrap ...string) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(wrap), self)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the %s: %w", role, err)
	}
	w := &Worker{role, cmd, in, json.NewDecoder(out)}
	if err := json.NewEncoder(in).Encode(task); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// Next reads the next value into v. It returns the error of the role, if that is next.
func (w *Worker) Next(v any) error {
	var l line
	if err := w.out.Decode(&l); err != nil {
		return fmt.Errorf("the %s ended: %w", w.Name, err)
	}
	if l.Missing {
		return fmt.Errorf("%s%w", strings.TrimSuffix(l.Error, ErrMissing.Error()), ErrMissing)
	}
	if l.Error != "" {
		return fmt.Errorf("the %s failed: %s", w.Name, l.Error)
	}
	if err := json.Unmarshal(l.Value, v); err != nil {
		return fmt.Errorf("a value of the %s cannot be decoded: %w", w.Name, err)
	}
	return nil
}

// Tell sends a text of one line to the worker. A worker that waits in Hear, or will, goes
// on.
func (w *Worker) Tell(text string) error {
	if _, err := fmt.Fprintln(w.in, text); err != nil {
		return fmt.Errorf("the %s is gone: %w", w.Name, err)
	}
	return nil
}

// Wait waits until the worker ends by itself.
func (w *Worker) Wait() error {
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("the %s ended: %w", w.Name, err)
	}
	return nil
}

// Kill kills the worker. Next returns an error then; Stop is still to be called.
func (w *Worker) Kill() { _ = w.cmd.Process.Kill() }

// End asks the worker to end, and kills it after a while. It does not wait for that; Wait or
// Stop is still to be called.
func (w *Worker) End() {
	_ = w.in.Close()
	time.AfterFunc(grace+time.Second, w.Kill)
}

// Stop kills the worker if it has not ended, and waits for it.
func (w *Worker) Stop() {
	if w.cmd.ProcessState != nil {
		return
	}
	w.Kill()
	_ = w.cmd.Wait() // it was killed, so there is always an error
}

// Pid returns the number of the process.
func (w *Worker) Pid() int { return w.cmd.Process.Pid }

// Processor returns the time that the worker, which has ended, ran on processors.
func (w *Worker) Processor() time.Duration {
	return w.cmd.ProcessState.UserTime() + w.cmd.ProcessState.SystemTime()
}
