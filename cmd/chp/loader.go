package main

import (
	"context"
	"errors"
	"io"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
)

// loader sets what it reads, in order.
type loader struct {
	*client
	name string // of the input, for messages

	skipped int // lines whose time to live is over
}

// run sets every line of in and waits until all have been published. It returns
// how many were. When a server is lost it goes on with the next one that can be followed:
// the client sends again what that one does not have.
func (l *loader) run(ctx context.Context, in io.Reader, maxLine int) (int, error) {
	// One timer ends the wait for a server that makes no progress: it starts
	// anew with each block of input, where a context a line would cost more than
	// the line.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-l.gone:
			cancel(chp.ErrUncertain)
		case <-ctx.Done():
		}
	}()
	stalled := time.AfterFunc(l.connection.timeout, func() { cancel(context.DeadlineExceeded) })
	defer stalled.Stop()
	lines := newPairReader(&pausing{command.Interruptible(ctx, in), stalled, l.connection.timeout}, maxLine)

	count := 0
	for {
		e, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = l.Set(ctx, string(e.Key), e.Value, chp.WithTTL(e.TTL))
		}
		if ctx.Err() != nil {
			return count, l.broken(ctx, count, err)
		}
		if err != nil {
			return count, l.stop(ctx, stalled, count, fail(exitRefused, "%s, line %d: %s", l.name, lines.number, plain(err)))
		}
		count++
	}
	l.skipped = lines.skipped
	stalled.Reset(l.connection.timeout)
	if err := l.Flush(ctx); err != nil {
		return count, l.broken(ctx, count, err)
	}
	return count, nil
}

// stop waits for the lines sent so far, to be able to say that they are in the
// map, and returns why the load ends.
func (l *loader) stop(ctx context.Context, stalled *time.Timer, count int, why error) error {
	stalled.Reset(l.connection.timeout)
	if err := l.Flush(ctx); err != nil {
		return l.broken(ctx, count, errors.Join(err, why))
	}
	return fail(exitRefused, "%w (lines before it, all loaded: %d)", why, count)
}

// broken says how far a load came whose server went away or stopped answering.
func (l *loader) broken(ctx context.Context, count int, err error) error {
	const unknown = "some may not have been stored: run the load again"
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, chp.ErrUncertain), errors.Is(cause, chp.ErrUncertain):
		return fail(exitNoServer, "lost the connection after %d lines were sent; %s", count, unknown)
	case errors.Is(cause, context.DeadlineExceeded):
		return fail(exitNoServer, "the server made no progress for %v after %d lines were sent; %s", l.connection.timeout, count, unknown)
	case ctx.Err() != nil:
		return fail(exitRefused, "interrupted after %d lines were sent; %s", count, unknown)
	}
	return refused(err)
}

// pausing is an input during whose reads a timer rests: however long the input
// takes to come is not the server's doing.
type pausing struct {
	in    io.Reader
	timer *time.Timer
	time  time.Duration
}

// Read reads from the input.
func (p *pausing) Read(b []byte) (int, error) {
	p.timer.Stop()
	defer p.timer.Reset(p.time)
	return p.in.Read(b)
}
