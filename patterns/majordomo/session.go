package majordomo

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/fifo"
	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// session is one connection of a worker.
type session struct {
	connection
	w       *Worker
	settled bool // has registered

	heard    atomic.Int64 // when the broker was last heard, in nanoseconds since began
	lastSent atomic.Int64 // when a message was last sent
	began    time.Time

	mu    sync.Mutex
	queue fifo.Queue[task] // requests that wait for the handler
	busy  bool             // the handler runs
	since int64            // when it was called
	wake  chan struct{}    // queue is not empty any more; capacity 1
	armed bool             // slow is running

	slow *time.Timer // when to call giveBack
}

// task is a request that waits for the handler.
type task struct {
	address []byte
	frames  [][]byte
}

var (
	errSilent      = errors.New("majordomo: the broker is silent")
	errDismissed   = errors.New("majordomo: the broker has sent DISCONNECT")
	errLost        = errors.New("majordomo: the connection was lost")
	errOutOfOrder  = errors.New("majordomo: the broker sends more requests than this worker accepts")
	errUnexpected  = errors.New("majordomo: the broker has sent an invalid command")
	errSessionOver = errors.New("majordomo: the session has ended")
)

// open makes a session, which connects to the broker. It returns nil after an error.
func (w *Worker) open() (*session, error) {
	s := &session{w: w, began: time.Now(), wake: make(chan struct{}, 1), slow: time.NewTimer(time.Hour)}
	s.slow.Stop()
	if err := s.connection.open(w.ctx, w.opts.Broker, w.opts.Socket, func() {}); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *session) now() int64 { return int64(time.Since(s.began)) }

// run registers and handles requests. It returns when the session has ended and the
// handler has returned.
func (s *session) run() {
	defer s.close(errSessionOver)
	w := s.w
	v := w.opts.Version
	hello := append(appendWorkerHeader(nil, v, ready, true), 0, byte(len(w.service)))
	// It waits for the connection, since Immediate is set.
	if hooks.SendWire(s.ctx, s.dealer, append(hello, w.service...), 1, nil) != nil {
		return
	}
	s.settled = true
	if !s.welcomes() {
		w.registered()
	}
	s.heard.Store(s.now())
	s.lastSent.Store(s.now())
	w.sessions.Add(1)
	w.connected.Add(1)
	defer w.connected.Add(-1)

	var parts sync.WaitGroup
	parts.Go(s.handle)
	parts.Go(s.beat)
	s.cancel(s.receive())
	parts.Wait()
	if context.Cause(s.ctx) != errDismissed {
		// Without this, the broker would wait for the worker's liveness.
		_ = hooks.SendWire(wake.Ended, s.dealer, appendWorkerHeader(nil, v, disconnect, false), 1, nil)
	}
}

// receive handles the broker's commands. It returns why the session ends.
func (s *session) receive() error {
	var batch sockets.Batch
	defer batch.Release()
	var p packet
	for {
		if err := s.dealer.RecvBatch(s.ctx, &batch); err != nil {
			return err
		}
		s.heard.Store(s.now())
		for i := range batch.Len() {
			if !p.parse(batch.Message(i), false) || !p.worker || p.version != s.w.opts.Version {
				s.w.malformed.Add(1)
				return errUnexpected
			}
			switch p.command {
			case heartbeat:
			case disconnect:
				s.w.reach.why.Store(&errDismissed)
				if s.w.opts.OnDismiss != nil {
					s.w.opts.OnDismiss()
				}
				return errDismissed
			case request:
				if !s.push(&p) {
					s.w.malformed.Add(1)
					return errOutOfOrder
				}
			default:
				s.w.malformed.Add(1)
				return errUnexpected
			}
		}
		s.w.registered()
	}
}

// push queues a request for the handler. It returns false if the broker has sent too
// many.
func (s *session) push(p *packet) bool {
	// One allocation for all of the request, which belongs to the handler.
	data := append(append(make([]byte, 0, len(p.address)+len(p.body)), p.address...), p.body...)
	n := len(p.address)
	body := zmtp.WireMessage(data[n:])
	t := task{data[:n:n], body.AppendFrames(make([][]byte, 0, body.Len()))}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.queue.Len()
	if waiting >= s.w.opts.Ahead {
		return false
	}
	s.queue.Push(t)
	switch {
	case waiting == 0 && !s.busy:
		wake.Signal(s.wake)
	case !s.armed:
		s.armed = true
		s.slow.Reset(giveBackTime)
	}
	return true
}

// pop waits for the next request.
func (s *session) pop() (task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queue.Len() == 0 && s.ctx.Err() == nil {
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-s.ctx.Done():
		}
		s.mu.Lock()
	}
	if s.ctx.Err() != nil {
		return task{}, false
	}
	s.busy, s.since = true, s.now()
	return s.queue.Pop(), true
}

// handle calls the handler for the requests, one after the other.
func (s *session) handle() {
	for {
		t, ok := s.pop()
		if !ok {
			return
		}
		s.handleOne(t)
	}
}

func (s *session) handleOne(t task) {
	w := s.w
	ctx := s.ctx
	if w.opts.Version == Version02 {
		part := &parts{s: s, address: t.address}
		defer part.end()
		ctx = context.WithValue(ctx, partsKey{}, part)
	}
	body, err := w.handler(ctx, t.frames)
	w.requests.Add(1)
	if err != nil {
		w.failed.Add(1)
		body = errorOf(err).frames()
	}
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.busy = false // before the reply is sent: see giveBack
	s.mu.Unlock()
	if err = s.send(reply, t.address, body); errors.Is(err, sockets.ErrTooLarge) {
		err = s.send(reply, t.address, (&Error{CodeFailed, "reply is too large"}).frames())
	}
	if err != nil {
		s.cancel(err)
	}
}

var (
	emptyFrame = []byte{}
	header01   = []byte(worker01)
	header02   = []byte(worker02)
	codes      = [2]map[command][]byte{
		Version01: {reply: {workerCode(Version01, reply)}},
		Version02: {reply: {workerCode(Version02, reply)}, partial: {workerCode(Version02, partial)}},
	}
)

// send sends a reply or a part of one.
func (s *session) send(c command, address []byte, body [][]byte) error {
	v := s.w.opts.Version
	frames := make([][]byte, 0, 5+max(len(body), 1))
	if v == Version01 {
		frames = append(frames, emptyFrame, header01)
	} else {
		frames = append(frames, header02)
	}
	frames = append(frames, codes[v][c], address, emptyFrame)
	if len(body) == 0 {
		frames = append(frames, emptyFrame)
	}
	err := s.dealer.Send(s.ctx, append(frames, body...)...)
	s.lastSent.Store(s.now())
	return err
}

// beat sends heartbeats, also while the handler runs, and ends the session if the broker
// is silent.
func (s *session) beat() {
	interval := s.w.opts.Heartbeat
	period := max(interval/4, time.Millisecond)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	defer s.slow.Stop()
	beat := appendWorkerHeader(nil, s.w.opts.Version, heartbeat, false)
	last := s.now()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.slow.C:
			s.giveBack()
			continue
		case <-ticker.C:
		}
		now := s.now()
		late := now - last - int64(period)
		last = now
		if late > int64(period) { // this process did not run, which is not the broker's fault
			s.heard.Add(late)
		}
		s.mu.Lock()
		counts := !s.busy || s.ours()
		s.mu.Unlock()
		if !counts {
			s.heard.Store(now)
		}
		if now-s.heard.Load() >= int64(interval)*int64(s.w.opts.Liveness) {
			s.w.silent.Add(1)
			s.cancel(errSilent)
			return
		}
		if now-s.lastSent.Load() >= int64(interval)*7/8 {
			_ = hooks.SendWire(wake.Ended, s.dealer, beat, 1, nil)
			s.lastSent.Store(now)
		}
	}
}

// giveBack gives back the requests that wait for a slow handler.
func (s *session) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	n := s.queue.Len()
	if n == 0 || !s.ours() {
		return
	}
	if left := giveBackTime - time.Duration(s.now()-s.since); !s.busy || left > 0 {
		s.armed = true
		s.slow.Reset(max(left, time.Millisecond))
		return
	}
	count := strconv.AppendInt(nil, int64(n), 10)
	wire := appendWorkerHeader(nil, s.w.opts.Version, giveBack, true)
	wire = append(append(wire, 0, byte(len(count))), count...)
	// The broker counts from the request that is being handled. The reply to that is
	// sent after this, since busy is first cleared under the same mutex.
	if hooks.SendWire(wake.Ended, s.dealer, wire, 1, nil) != nil {
		return
	}
	s.queue = fifo.Queue[task]{}
	s.w.returned.Add(uint64(n))
}

// parts is the value in a handler's context that Partial uses.
type parts struct {
	s       *session
	mu      sync.Mutex
	over    bool
	address []byte
}

type partsKey struct{}

func (p *parts) end() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
}

// Partial sends a part of the reply to the request of the Handler's context ctx. In
// version 0.2 a reply may have any number of parts; the handler returns the last one.
// Partial returns ErrNotPartial in version 0.1, and after the handler has returned.
func Partial(ctx context.Context, frames ...[]byte) error {
	p, ok := ctx.Value(partsKey{}).(*parts)
	if !ok {
		return ErrNotPartial
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return ErrNotPartial
	}
	return p.s.send(partial, p.address, frames)
}
