package main

import (
	"context"
	"errors"
	"io"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
)

// loader sets the keys of a dump, in order.
type loader struct {
	*client
	name  string // name of the input for messages
	lines *pairReader
}

// run sets the key of every line of in and waits until all updates have been published.
// It returns their number. If a server is lost, it continues with the next one that the
// client follows, and the client repeats the updates that this server does not have.
func (l *loader) run(ctx context.Context, in io.Reader, maxLine int) (int, error) {
	// One timer ends the wait for a server that makes no progress. It restarts with
	// each block of input, because a context per line would cost more than the line.
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
	l.lines = newPairReader(&pausing{command.Interruptible(ctx, in), stalled, l.connection.timeout}, maxLine)

	count := 0
	for {
		e, err := l.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = l.Set(ctx, string(e.Key), e.Value, chp.WithProperties(e.Properties), chp.WithTTL(e.TTL))
		}
		if ctx.Err() != nil {
			return count, l.broken(ctx, count, err)
		}
		if err != nil {
			return count, l.stop(ctx, stalled, count, fail(exitRefused, "%s, line %d: %s", l.name, l.lines.Number, plain(err)))
		}
		count++
	}
	stalled.Reset(l.connection.timeout)
	if err := l.Flush(ctx); err != nil {
		return count, l.broken(ctx, count, err)
	}
	return count, nil
}

// stop waits until the lines sent so far are in the map, and returns the error why the
// load ends.
func (l *loader) stop(ctx context.Context, stalled *time.Timer, count int, why error) error {
	stalled.Reset(l.connection.timeout)
	if err := l.Flush(ctx); err != nil {
		return l.broken(ctx, count, errors.Join(err, why))
	}
	return fail(exitRefused, "%w (lines before it, all loaded: %d)", why, count)
}

// broken returns the error of a load whose server was lost or has stopped answering.
func (l *loader) broken(ctx context.Context, count int, err error) error {
	unknown := "; some may not have been stored: run the load again"
	if count == 0 {
		unknown = ""
	}
	sent := command.Count(count, "line")
	cause := context.Cause(ctx)
	why := firstReason(l.faults())
	if why != "" {
		why = " (" + why + ")"
	}
	switch {
	case errors.Is(err, chp.ErrUncertain), errors.Is(cause, chp.ErrUncertain):
		return fail(exitNoServer, "lost the connection after sending %s%s%s", sent, why, unknown)
	case errors.Is(cause, context.DeadlineExceeded):
		return fail(exitNoServer, "the server made no progress for %v after getting %s%s%s", l.connection.timeout, sent, why, unknown)
	case ctx.Err() != nil:
		return fail(exitRefused, "interrupted after sending %s%s", sent, unknown)
	}
	return refused(err)
}

// pausing is an input that stops a timer during each read, because the time limit is for
// the server and not for the input.
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
