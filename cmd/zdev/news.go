package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/lograte"
	"clustermap/sockets"

	"github.com/spf13/cobra"
)

// newsPause is the minimum time between two messages about a failed connection.
const newsPause = time.Second

// news reports on standard error when a device cannot connect to an endpoint, and when it
// is connected again.
type news struct {
	ctx context.Context // when it is done, nothing more is reported
	out io.Writer
	to  string // the endpoint, and what is there

	mu      sync.Mutex
	away    bool  // the last attempt failed
	err     error // its error
	said    bool  // the value of away that was reported last
	at      time.Time
	writing bool
}

// news returns a monitor of the sockets that connect to the broker.
func (a *atBroker) news(ctx context.Context, cmd *cobra.Command) func(sockets.Event) {
	return newNews(ctx, cmd, "the broker at "+a.broker).watch
}

func newNews(ctx context.Context, cmd *cobra.Command, to string) *news {
	return &news{ctx: ctx, out: cmd.ErrOrStderr(), to: to}
}

// watch handles an event. It does not wait until a line is written, because standard error
// may be a pipe without a reader.
func (n *news) watch(e sockets.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch e.Kind {
	case sockets.EventHandshakeSucceeded:
		n.away, n.err = false, nil
	case sockets.EventConnectFailed, sockets.EventHandshakeFailed: // also after EventDisconnected, if the peer has ended
		if errors.Is(e.Err, context.Canceled) {
			return // the device closes the connection
		}
		n.away, n.err = true, e.Err
	default:
		return
	}
	n.tell()
}

// tell writes a line if the state has changed. mu must be held.
func (n *news) tell() {
	now := time.Now()
	if n.writing || n.away == n.said || n.away && now.Sub(n.at) < newsPause || n.ctx.Err() != nil {
		return
	}
	n.said, n.at, n.writing = n.away, now, true
	text := fmt.Sprintf("zdev: connected to %s\n", n.to)
	if n.away {
		text = fmt.Sprintf("zdev: no connection to %s%s; trying again\n", n.to, reason(n.err))
	}
	go func() {
		_, _ = io.WriteString(n.out, text)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.writing = false
		n.tell()
	}()
}

// dismissed returns a function that reports on standard error that the broker has sent
// DISCONNECT to a worker of some services, now and then while that repeats.
func (a *atBroker) dismissed(ctx context.Context, cmd *cobra.Command, services string) func() {
	limit := &lograte.Limiter{First: 10 * time.Second, Most: 10 * time.Minute, Size: 1}
	return func() {
		if log, _ := limit.Due(a.broker, "", time.Now()); log && ctx.Err() == nil {
			command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: the broker at %s refuses a worker of %s, or is ending; its log says which\n", a.broker, services))
		}
	}
}
