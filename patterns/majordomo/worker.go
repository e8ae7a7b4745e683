package majordomo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/backoff"
	"clustermap/internal/option"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// Handler executes a request of a service and returns the reply. It owns the request's
// frames, and may reuse those of the reply once it is called again on the same
// connection. A reply without frames is sent as one empty frame. An error is sent in
// place of the reply: see Error.
//
// The context ends when the reply is not needed any more: the connection to the broker
// was lost, the broker has dismissed the worker, or the worker was closed. A request may
// arrive more than once (RFC 7 requires idempotent workers).
type Handler func(ctx context.Context, request [][]byte) (reply [][]byte, err error)

// Worker serves one service. It connects to the broker, and reconnects when the
// connection is lost or the broker dismisses it, until Close. All methods are safe for
// concurrent use.
type Worker struct {
	service string
	handler Handler
	opts    WorkerOptions
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	once    sync.Once
	reach   reach
	first   chan struct{} // closed when the first connection has registered

	connected                                               atomic.Int64
	requests, failed, returned, malformed, silent, sessions atomic.Uint64
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (w *Worker) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "majordomo.Worker") }

// WorkerStats has the counters of a worker.
type WorkerStats struct {
	Connected int    // connections registered now, up to Concurrency
	Sessions  uint64 // connections that were registered
	Requests  uint64 // handled
	Failed    uint64 // requests for which the handler returned an error
	Returned  uint64 // requests sent ahead and given back to the broker
	Malformed uint64 // invalid messages; each ended its connection
	Silent    uint64 // connections ended because the broker was silent
}

// NewWorker starts a worker of a service. It calls h for each request, from up to
// WorkerOptions.Concurrency goroutines at once. The broker may start later. The error is
// for invalid options and endpoints.
func NewWorker(service string, h Handler, o WorkerOptions) (*Worker, error) {
	o, err := o.withDefaults()
	if !validName([]byte(service)) {
		err = errors.Join(err, ErrService)
	}
	if isReserved([]byte(service)) {
		err = errors.Join(err, ErrReserved)
	}
	if h == nil {
		err = errors.Join(err, option.New("majordomo", "Handler", "is nil"))
	}
	if err != nil {
		return nil, err
	}
	w := &Worker{service: service, handler: h, opts: o, first: make(chan struct{})}
	setConnecting(&w.opts.Socket, o.Reconnect, o.ReconnectMax, o.Heartbeat, o.Liveness,
		map[string]string{propertyAhead: strconv.Itoa(o.Ahead), propertyInstance: newInstance()})
	w.reach.watch(&w.opts.Socket)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	first := make([]*session, o.Concurrency)
	for i := range first {
		if first[i], err = w.open(); err != nil {
			for _, s := range first[:i] {
				s.close(err)
			}
			w.cancel()
			return nil, err
		}
	}
	for _, s := range first {
		w.running.Go(func() { w.run(s) })
	}
	return w, nil
}

// setConnecting sets the options of a DEALER with one connection that is tried until it
// succeeds, and announces properties.
func setConnecting(o *sockets.Options, first, last, heartbeat time.Duration, liveness int, properties map[string]string) {
	o.Immediate = true
	o.ReconnectInterval, o.ReconnectIntervalMax = first, last
	o.Linger = cmp.Or(o.Linger, 250*time.Millisecond)
	if o.HeartbeatInterval == 0 {
		o.HeartbeatInterval, o.HeartbeatTimeout = heartbeat, heartbeat*time.Duration(liveness)
	}
	announce(o, properties)
}

// Close ends the worker: it cancels the handlers' contexts, sends DISCONNECT to the
// broker, and waits for the handlers to return. The broker passes requests without a
// reply to other workers. Closing a closed worker does nothing.
func (w *Worker) Close() error {
	w.cancel()
	w.running.Wait()
	return nil
}

// WaitRegistered waits until a broker has accepted the worker. READY has no answer in RFC 7, so
// with a broker of another implementation, or of an earlier version of this one, it waits until
// READY is sent, and the broker may still refuse it. If the context ends first, the error
// is a *NoBrokerError.
func (w *Worker) WaitRegistered(ctx context.Context) error {
	select {
	case <-w.first:
		return nil
	case <-ctx.Done():
		return w.reach.ended(ctx, w.opts.Broker)
	case <-w.ctx.Done():
		return ErrClosed
	}
}

func (w *Worker) registered() { w.once.Do(func() { close(w.first) }) }

// Stats returns the current counters.
func (w *Worker) Stats() WorkerStats {
	return WorkerStats{
		Connected: int(w.connected.Load()), Sessions: w.sessions.Load(), Requests: w.requests.Load(),
		Failed: w.failed.Load(), Returned: w.returned.Load(), Malformed: w.malformed.Load(), Silent: w.silent.Load(),
	}
}

// run runs one session after the other.
func (w *Worker) run(s *session) {
	wait := backoff.Backoff{Min: w.opts.Reconnect, Max: w.opts.ReconnectMax}
	for {
		began := time.Now()
		s.run()
		if s.settled && time.Since(began) > w.opts.Heartbeat {
			wait.Reset()
		}
		for s = nil; s == nil; s, _ = w.open() {
			if !wake.Pause(w.ctx, wait.Next()) {
				return
			}
		}
	}
}
