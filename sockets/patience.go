package sockets

import (
	"context"
	"time"
)

// limit is how long one call waits at most, beside its context:
// Options.SendTimeout or Options.RecvTimeout. The clock is not read before the
// first wait, so calls that need not wait pay nothing for it.
type limit struct {
	patience time.Duration // 0: no limit; negative: no waiting at all
	expired  <-chan time.Time
}

// start returns what ends the wait, nil if nothing does.
func (l *limit) start() (<-chan time.Time, error) {
	if l == nil || l.patience == 0 {
		return nil, nil
	}
	if l.patience < 0 {
		return nil, ErrTimeout
	}
	if l.expired == nil {
		l.expired = time.After(l.patience)
	}
	return l.expired, nil
}

// noWait is the context of the calls that do not wait: it has ended, and its
// error is ErrWouldBlock.
var noWait context.Context = &noWaitContext{context.Background()}

type noWaitContext struct{ context.Context }

func (*noWaitContext) Done() <-chan struct{} { return over }
func (*noWaitContext) Err() error            { return ErrWouldBlock }

// over is a closed channel.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
