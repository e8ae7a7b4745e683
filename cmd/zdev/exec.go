package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"

	"clustermap/internal/command"
)

const (
	// defaultMaxReply is the default maximum size of a program's standard output.
	defaultMaxReply = 64 << 20

	// maxComplaint is how many bytes of the end of its standard error are kept.
	maxComplaint = 4 << 10
)

// program is the command after "--" of a worker. It runs once for each request. run may
// be called concurrently; the caller limits the number of calls.
type program struct {
	path     string
	args     []string
	maxReply int
}

// newProgram returns the program for a command line: the command and its arguments.
// maxReply is the maximum size of its output in bytes; 0 means 64 MiB.
func newProgram(line []string, maxReply int) (*program, error) {
	if len(line) == 0 {
		return nil, command.Fail(command.ExitUsage, "give a command after --")
	}
	path, err := exec.LookPath(line[0])
	if err != nil {
		return nil, command.Fail(command.ExitUsage, "cannot run %s: %w", line[0], errors.Unwrap(err))
	}
	if maxReply == 0 {
		maxReply = defaultMaxReply
	}
	return &program{path: path, args: line[1:], maxReply: maxReply}, nil
}

// handler returns what handles requests: the command on a line, or with --echo nothing
// but a reply that is the request.
func handler(echo bool, line []string, maxReply command.Bytes) (func(context.Context, [][]byte) ([][]byte, error), error) {
	if echo {
		return func(_ context.Context, request [][]byte) ([][]byte, error) { return request, nil }, nil
	}
	program, err := newProgram(line, int(maxReply))
	return func(ctx context.Context, request [][]byte) ([][]byte, error) {
		reply, err := program.run(ctx, request...)
		return [][]byte{reply}, err
	}, err
}

// programError is the failure of one run.
type programError struct {
	Err    error  // an *exec.ExitError, a context's error, errReplyTooLarge, or a system error
	Stderr string // the last 4 KiB of the program's standard error
}

// Error returns one line: the error and the last line of standard error.
func (e *programError) Error() string {
	text := strings.TrimSpace(e.Stderr)
	if text = text[strings.LastIndexByte(text, '\n')+1:]; text != "" {
		return e.Err.Error() + ": " + text
	}
	return e.Err.Error()
}

func (e *programError) Unwrap() error { return e.Err }

// errReplyTooLarge is the error of a program that wrote more than maxReply.
var errReplyTooLarge = errors.New("the output of the command is larger than the maximum reply")

// run runs the program once. Its standard input is the concatenation of the frames of
// the body, which it need not read; its standard output is the reply. Every error is a
// *programError. When the context ends, the program is killed with all processes of its
// group, and the programError wraps the context's error.
func (p *program) run(ctx context.Context, body ...[]byte) (reply []byte, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := limited{left: p.maxReply, over: func() { cancel(errReplyTooLarge) }}
	var complaint tail
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	in := make([]io.Reader, len(body))
	for i := range body {
		in[i] = bytes.NewReader(body[i])
	}
	cmd.Stdin = io.MultiReader(in...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = command.RunGroup(cmd, 0)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // success, with a child process that still runs
		return out.bytes, nil
	}
	return nil, &programError{Err: err, Stderr: complaint.String()}
}

// limited is a buffer with a maximum size. If a write exceeds it, it calls over.
type limited struct {
	bytes []byte
	left  int
	over  func()
}

// Write appends b.
func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.left {
		l.over()
		return 0, errReplyTooLarge
	}
	l.left -= len(b)
	l.bytes = append(l.bytes, b...)
	return len(b), nil
}

// tail keeps the last maxComplaint bytes written to it.
type tail struct{ bytes []byte }

// Write appends b.
func (t *tail) Write(b []byte) (int, error) {
	t.bytes = append(t.bytes, b[max(0, len(b)-maxComplaint):]...)
	t.bytes = t.bytes[max(0, len(t.bytes)-maxComplaint):]
	return len(b), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.bytes), "\uFFFD") }
