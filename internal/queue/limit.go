package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"clustermap/internal/closed"
)

// Errors of a wait that has failed. They are the errors of package sockets with the
// same names, which documents them.
var (
	ErrClosed     = closed.Error("sockets: socket is closed")
	ErrTimeout    = fmt.Errorf("sockets: timeout: %w", os.ErrDeadlineExceeded)
	ErrWouldBlock = errors.New("sockets: operation would block")
)

// ErrSlowPeer ends the connection of a peer that does not take what is queued for it. Package
// sockets documents it.
var ErrSlowPeer = errors.New("sockets: peer too slow")

// Limit is how long one call waits at most, besides its context. The clock is not
// read before the first wait, so calls that need not wait pay nothing for it.
type Limit struct {
	Patience time.Duration // 0: no limit; negative: no waiting at all
	expired  <-chan time.Time
}

// start returns the channel that ends the wait, or nil if there is no limit. It
// returns ErrTimeout if the call must not wait at all.
func (l *Limit) start() (<-chan time.Time, error) {
	if l == nil || l.Patience == 0 {
		return nil, nil
	}
	if l.Patience < 0 {
		return nil, ErrTimeout
	}
	if l.expired == nil {
		l.expired = time.After(l.Patience)
	}
	return l.expired, nil
}

// none reports whether there is no limit.
func (l *Limit) none() bool { return l == nil || l.Patience == 0 }

// NoWait is the context of the calls that do not wait: it has ended, and its
// error is ErrWouldBlock.
var NoWait context.Context = &noWait{context.Background()}

type noWait struct{ context.Context }

func (*noWait) Done() <-chan struct{} { return over }
func (*noWait) Err() error            { return ErrWouldBlock }

// over is a closed channel.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
