// Package worker runs a program again as processes of its own, each of which does one task
// and writes values that the parent reads. No worker outlives its parent. Processes that
// also take commands use package link.
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
// role, a space and the task.
const variable = "CLUSTERMAP_WORKER"

// line is a line that a worker writes.
type line struct {
	Value   json.RawMessage `json:",omitempty"`
	Error   string          `json:",omitempty"`
	Missing bool            `json:",omitempty"`
}

// Main does the work of a process that is a worker, and ends it. In another process it does
// nothing.
func Main(roles map[string]Role) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			told <- struct{}{}
		}
		os.Exit(1) // the parent is done with this process, or gone
	}()
	out := json.NewEncoder(os.Stdout)
	say := func(l line) {
		if out.Encode(l) != nil {
			os.Exit(1) // the parent is gone
		}
	}
	role, task, _ := strings.Cut(text, " ")
	err := roles[role]([]byte(task), func(value any) {
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

// told has what Tell has sent.
var told = make(chan struct{}, 1)

// Told waits, in a worker, for a call of Tell.
func Told() { <-told }

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

// Failed returns the error of another process, given its text and whether it is ErrMissing.
func Failed(name, text string, missing bool) error {
	if missing {
		return fmt.Errorf("%s%w", strings.TrimSuffix(text, ErrMissing.Error()), ErrMissing)
	}
	return fmt.Errorf("the %s failed: %s", name, text)
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
	role string
	cmd  *exec.Cmd
	in   io.Writer
	out  *json.Decoder
}

// Start starts a worker, which is killed when ctx ends. wrap is a command, such as taskset
// with arguments, that runs it.
func Start(ctx context.Context, role string, task any, wrap ...string) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(wrap), self)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+role+" "+string(text))
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
		return nil, err
	}
	return &Worker{role, cmd, in, json.NewDecoder(out)}, nil
}

// Next reads the next value into v. It returns the error of the role, if that is next.
func (w *Worker) Next(v any) error {
	var l line
	if err := w.out.Decode(&l); err != nil {
		return fmt.Errorf("the %s ended: %w", w.role, err)
	}
	if l.Error != "" {
		return Failed(w.role, l.Error, l.Missing)
	}
	return json.Unmarshal(l.Value, v)
}

// Tell lets the worker go on that waits in Told, or will.
func (w *Worker) Tell() error {
	_, err := fmt.Fprintln(w.in)
	return err
}

// Wait waits until the worker ends by itself.
func (w *Worker) Wait() error {
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("the %s ended: %w", w.role, err)
	}
	return nil
}

// Kill kills the worker. Next returns an error then; Stop is still to be called.
func (w *Worker) Kill() { _ = w.cmd.Process.Kill() }

// Stop ends the worker if it has not ended, and waits for it.
func (w *Worker) Stop() {
	if w.cmd.ProcessState != nil {
		return
	}
	w.Kill()
	_ = w.cmd.Wait() // it was killed, so there is always an error
}

// Processor returns the time that the worker, which has ended, ran on processors.
func (w *Worker) Processor() time.Duration {
	return w.cmd.ProcessState.UserTime() + w.cmd.ProcessState.SystemTime()
}
