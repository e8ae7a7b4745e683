package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"clustermap/internal/command"
)

const (
	// defaultMaxReply bounds what a program may write to its standard output.
	defaultMaxReply = 64 << 20

	// maxComplaint bounds what is kept of the end of its standard error.
	maxComplaint = 4 << 10

	// outputGrace is how long the output of a program that has ended, or was killed,
	// may stay open: by a process of its own that it left behind.
	outputGrace = time.Second
)

// program is the command behind "--" of a worker: it runs once for each request. Its
// whole use is
//
//	p, err := newProgram(args, maxReply)  // looks the command up; refuses with an exit code
//	reply, err := p.run(ctx, body...)     // as often as you like, from many goroutines
//
// It sets no limit on how many run at once: its caller does.
type program struct {
	path     string
	args     []string
	maxReply int
}

// newProgram returns the program of a command line: the command and its arguments.
// maxReply bounds its output in bytes; 0 means 64 MiB.
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

// programError is the failure of one run.
type programError struct {
	Err    error  // an *exec.ExitError, a context's error, errReplyTooLarge, or the system's
	Stderr string // the end of what the program wrote to standard error, 4 KiB of it
}

// Error is one line: what happened, and the last line of standard error.
func (e *programError) Error() string {
	text := strings.TrimSpace(e.Stderr)
	if text = text[strings.LastIndexByte(text, '\n')+1:]; text != "" {
		return e.Err.Error() + ": " + text
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *programError) Unwrap() error { return e.Err }

// errReplyTooLarge is the error of a program that wrote more than maxReply.
var errReplyTooLarge = errors.New("the command wrote more than a reply may have")

// run runs the program once. It gets the frames of the body, one behind the other, on
// standard input, and need not read them; what it writes to standard output is the
// reply. Every error is a *programError. When the context ends, the program is killed
// with all processes of its group, and the context's error is inside the
// programError.
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
	cmd.WaitDelay = outputGrace
	ownGroup(cmd)
	// Linux kills the program when the thread that started it ends (endWithParent).
	runtime.LockOSThread()
	err = cmd.Run()
	runtime.UnlockOSThread()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it ended well, and left a process behind
		return out.bytes, nil
	}
	return nil, &programError{Err: err, Stderr: complaint.String()}
}

// limited keeps what is written to it, up to a limit; beyond it, it calls over.
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

// tail keeps the end of what is written to it.
type tail struct{ bytes []byte }

// Write appends b.
func (t *tail) Write(b []byte) (int, error) {
	t.bytes = append(t.bytes, b[max(0, len(b)-maxComplaint):]...)
	t.bytes = t.bytes[max(0, len(t.bytes)-maxComplaint):]
	return len(b), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.bytes), "\uFFFD") }
