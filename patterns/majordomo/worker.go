package majordomo

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/backoff"
	"clustermap/sockets"
)

// Handler does one request of a service and returns the reply. The request's frames
// belong to it; the reply's are used only until they are sent, before the handler is
// called again. A reply without frames is sent as one empty frame. An error is sent
// in place of the reply: see Error.
//
// The context ends when nobody waits for the reply any more: the connection to the
// broker was lost, the broker has given up this worker, or the worker was closed.
// The worker asks for no other request before the handler has returned. A request
// may come more than once (RFC 7 wants workers to be idempotent).
type Handler func(ctx context.Context, request [][]byte) (reply [][]byte, err error)

// Worker does the requests of one service. It connects to the broker, and connects
// anew when the connection is lost or the broker ends it, until Close. All methods
// are safe for concurrent use.
type Worker struct {
	service string
	handler Handler
	opts    WorkerOptions
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	once    sync.Once
	first   chan struct{} // closed when a connection has registered for the first time

	connected                                               atomic.Int64
	requests, failed, returned, malformed, silent, sessions atomic.Uint64
}

// WorkerStats counts what a worker has done since it began.
type WorkerStats struct {
	Connected int    // connections that are registered now, up to Concurrency
	Sessions  uint64 // connections that were registered
	Requests  uint64 // handled
	Failed    uint64 // of these, those that the handler returned an error for
	Returned  uint64 // given back to the broker, which had sent them ahead
	Malformed uint64 // messages that are no command for a worker; each ended its connection
	Silent    uint64 // times that the broker was given up because it was silent
}

// NewWorker makes a worker of a service and starts it: it calls h for each request,
// in up to WorkerOptions.Concurrency goroutines at once. Faults of the options and
// of the endpoint are returned; that there is no broker yet is no fault.
func NewWorker(service string, h Handler, o WorkerOptions) (*Worker, error) {
	o, err := o.withDefaults()
	if !validName([]byte(service)) {
		err = errors.Join(err, ErrService)
	}
	if isReserved([]byte(service)) {
		err = errors.Join(err, ErrReserved)
	}
	if h == nil {
		err = errors.Join(err, &OptionError{"Handler", "is nil"})
	}
	if err != nil {
		return nil, err
	}
	w := &Worker{service: service, handler: h, opts: o, first: make(chan struct{})}
	s := &w.opts.Socket
	if s.HeartbeatInterval == 0 {
		s.HeartbeatInterval, s.HeartbeatTimeout = o.Heartbeat, o.Heartbeat*time.Duration(o.Liveness)
	}
	setConnecting(s, o.Reconnect, o.ReconnectMax)
	announce(s, map[string]string{propertyAhead: strconv.Itoa(o.Ahead)})
	w.ctx, w.cancel = context.WithCancel(context.Background())
	first := make([]*session, o.Concurrency)
	for i := range first {
		if first[i], err = w.open(); err != nil {
			for _, s := range first[:i] {
				s.close()
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

// setConnecting sets the options of a DEALER that has one connection, which is
// tried until it succeeds.
func setConnecting(o *sockets.Options, first, last time.Duration) {
	o.Immediate = true
	o.ReconnectInterval, o.ReconnectIntervalMax = first, last
	o.ReconnectStop = 0
	o.HelloMessage, o.HiccupMessage, o.Conflate, o.ProbeRouter = nil, nil, false, false
	o.RecvTimeout, o.SendTimeout = 0, 0
	if o.Linger == 0 {
		o.Linger = 250 * time.Millisecond
	}
}

// Close ends the worker: the contexts of its handlers end, the broker is told, and
// Close returns when all handlers have returned. The broker gives requests that
// were not replied to to other workers. Closing a closed worker does nothing.
func (w *Worker) Close() error {
	w.cancel()
	w.running.Wait()
	return nil
}

// WaitRegistered returns when the worker has sent its first READY to a broker. READY
// has no answer (RFC 7), so it may still be refused.
func (w *Worker) WaitRegistered(ctx context.Context) error {
	select {
	case <-w.first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.ctx.Done():
		return ErrClosed
	}
}

// Stats returns a reading of the worker's counters.
func (w *Worker) Stats() WorkerStats {
	return WorkerStats{
		Connected: int(w.connected.Load()), Sessions: w.sessions.Load(), Requests: w.requests.Load(),
		Failed: w.failed.Load(), Returned: w.returned.Load(), Malformed: w.malformed.Load(), Silent: w.silent.Load(),
	}
}

// run has one session after the other.
func (w *Worker) run(s *session) {
	wait := backoff.Backoff{Min: w.opts.Reconnect, Max: w.opts.ReconnectMax}
	for {
		began := time.Now()
		s.run()
		if w.ctx.Err() != nil {
			return
		}
		if s.settled && time.Since(began) > w.opts.Heartbeat {
			wait.Reset()
		}
		for {
			timer := time.NewTimer(wait.Next())
			select {
			case <-timer.C:
			case <-w.ctx.Done():
				timer.Stop()
				return
			}
			var err error
			if s, err = w.open(); err == nil {
				break
			}
		}
	}
}
