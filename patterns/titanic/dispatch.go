package titanic

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"clustermap/internal/backoff"
	"clustermap/internal/list"
	"clustermap/internal/wake"

	"github.com/google/btree"
)

// A broker executes requests. It is the dispatcher's view of Majordomo.
type broker interface {
	// available reports whether a service has a worker.
	available(ctx context.Context, service string) (bool, error)
	// execute makes a worker execute a request. The error is the context's,
	// errUnavailable, a *RefusedError, or another one if the request itself failed.
	execute(ctx context.Context, service string, body [][]byte) (reply [][]byte, err error)
}

// errUnavailable reports that the service has no worker, or that the broker does not
// answer. It is not the request's fault.
var errUnavailable = errors.New("titanic: service is unavailable")

// errHeld ends an attempt whose reply has no room among those that wait for the disk.
// The request is executed again later.
var errHeld = errors.New("titanic: too many replies wait for the disk")

// A dispatcher executes the stored requests. Each service with requests has its own
// goroutine, queue and limit, so none waits for another.
type dispatcher struct {
	options Options
	store   *store // set before requests are added
	broker  broker // set before requests are added
	began   time.Time
	ctx     context.Context // ends with the dispatcher
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	services map[string]*service
	promised map[string]int // the number of requests being stored, by service
	held     int            // bytes of the requests at the broker, and of the replies that wait for the disk
	short    []*service     // wait until there is room for a request; woken by release
	closed   bool
	counts   dispatchCounts
}

type dispatchCounts struct {
	running                    int
	attempts, retries, refused uint64
}

// A service has the requests for a service. It exists while there are some.
type service struct {
	name string
	wake chan struct{} // serve has to check the fields below; capacity 1

	// Guarded by dispatcher.mu.
	ready   list.List[entry]      // oldest first
	delayed *btree.BTreeG[*entry] // failed requests, until they are tried again; the first one due first
	running int
	bytes   int  // of the requests that are running
	short   bool // in dispatcher.short
	lost    bool // an attempt found the service unavailable
	served  bool // an attempt had an answer
}

// dueBefore is the order of service.delayed.
func dueBefore(a, b *entry) bool { return a.due < b.due || a.due == b.due && a.key < b.key }

func newDispatcher(o Options) *dispatcher {
	d := &dispatcher{options: o, began: time.Now(), services: make(map[string]*service), promised: make(map[string]int)}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// admit reports whether a request for a service is accepted. If so, it reserves a place
// for the service until settle is called, when storing the request has succeeded or
// failed.
func (d *dispatcher) admit(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.services[name] == nil && d.promised[name] == 0 {
		n := len(d.services)
		for other := range d.promised { // as many as there are requests handled at once
			if d.services[other] == nil {
				n++
			}
		}
		if n >= d.options.MaxServices {
			return false
		}
	}
	d.promised[name]++
	return true
}

// settle ends the reservation of admit.
func (d *dispatcher) settle(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.promised[name]--; d.promised[name] == 0 {
		delete(d.promised, name)
	}
}

// add adds a stored request.
func (d *dispatcher) add(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	s := d.services[e.service]
	if s == nil {
		s = &service{name: e.service, wake: make(chan struct{}, 1), delayed: btree.NewG(16, dueBefore)}
		d.services[s.name] = s
		d.running.Go(func() { d.serve(s) })
	}
	e.service = s.name // one copy of a name for all its requests
	e.state = stateReady
	s.ready.PushBack(&e.queue)
	wake.Signal(s.wake)
}

// drop removes an entry that has a reply or was deleted, and cancels a running attempt.
func (d *dispatcher) drop(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.services[e.service]
	switch e.state {
	case stateReady:
		e.queue.Remove()
	case stateDelayed:
		s.delayed.Delete(e)
	case stateRunning:
		e.cancel()
	case stateNone:
		return
	}
	e.state, e.service, e.cancel = stateNone, "", nil // a reply is kept for long
	wake.Signal(s.wake)
}

func (d *dispatcher) now() time.Duration { return time.Since(d.began) }

// serve executes the requests of one service, until there are none. It asks the broker
// for a worker before the first request, and again after a request found none.
func (d *dispatcher) serve(s *service) {
	retry := backoff.Backoff{Min: d.options.RetryMin, Max: d.options.RetryMax}
	available, probed := false, false
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for d.ctx.Err() == nil {
		d.mu.Lock()
		if s.served {
			retry.Reset()
			s.served = false
		}
		if s.lost {
			available, s.lost = false, false
		}
		now := d.now()
		next, delayed := s.delayed.Min()
		for ; delayed && next.due <= now; next, delayed = s.delayed.Min() {
			s.delayed.DeleteMin()
			next.state = stateReady
			s.ready.PushBack(&next.queue)
		}
		// Replies that are not fetched and deleted have filled the store: no more of
		// them.
		full := d.store.repliesBytes() >= d.options.MaxBytes
		for available && !full && s.running < d.options.PerService && s.ready.Front() != nil && d.room(s, s.ready.Front().size) {
			d.start(s, s.ready.Front())
		}
		idle := s.ready.Front() == nil
		if idle && !delayed && s.running == 0 {
			delete(d.services, s.name)
			d.short = slices.DeleteFunc(d.short, func(other *service) bool { return other == s })
			d.mu.Unlock()
			return
		}
		wait := time.Hour
		if delayed {
			wait = next.due - now
		}
		d.mu.Unlock()

		if !idle && (!available || full) {
			if probed && !wake.Pause(d.ctx, retry.Next()) {
				return
			}
			probed = true
			available = d.probe(s)
			continue
		}
		timer.Reset(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-d.ctx.Done():
		}
	}
}

// room reports whether a service may have another request of size bytes at the broker. If
// not, release wakes it. Requests of all services have half of MaxHeldBytes, so that there is room
// for replies. Of that a service may take as much as it leaves for others (a dynamic
// threshold), so that a few whose workers are slow do not stop them. A single request may
// exceed the bound. The caller holds d.mu.
func (d *dispatcher) room(s *service, size int) bool {
	free := d.options.MaxHeldBytes/2 - d.held
	if d.held == 0 || s.running == 0 && size <= free || s.bytes+size <= free-size {
		return true
	}
	if !s.short {
		s.short = true
		d.short = append(d.short, s)
	}
	return false
}

// release ends the use of held bytes. The caller holds d.mu.
func (d *dispatcher) release(size int) {
	d.held -= size
	for _, s := range d.short {
		s.short = false
		wake.Signal(s.wake)
	}
	clear(d.short)
	d.short = d.short[:0]
}

// probe asks the broker whether a service has a worker.
func (d *dispatcher) probe(s *service) bool {
	ctx, cancel := context.WithTimeout(d.ctx, max(d.options.RetryMax, time.Second))
	defer cancel()
	ok, err := d.broker.available(ctx, s.name)
	return ok && err == nil
}

// start starts an attempt with a request of s.ready. The caller holds d.mu.
func (d *dispatcher) start(s *service, e *entry) {
	e.queue.Remove()
	ctx, cancel := context.WithCancel(d.ctx)
	e.state, e.cancel = stateRunning, cancel
	size := e.size
	d.held += size
	s.bytes += size
	s.running++
	d.counts.running++
	d.counts.attempts++
	if e.attempts > 0 {
		d.counts.retries++
	}
	e.attempts++
	d.running.Go(func() {
		err := d.attempt(ctx, s, e, size)
		cancel()
		d.ended(s, e, err)
	})
}

// ended handles the end of an attempt.
func (d *dispatcher) ended(s *service, e *entry, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.running--
	d.counts.running--
	wake.Signal(s.wake)
	if e.state != stateRunning {
		return // it has its reply, or was deleted
	}
	if errors.Is(err, errUnavailable) {
		s.lost = true
		e.state = stateReady
		s.ready.PushFront(&e.queue)
		return
	}
	e.state = stateDelayed
	e.due = d.now() + backoff.Wait(d.options.RetryMin, d.options.RetryMax, e.attempts-1)
	s.delayed.ReplaceOrInsert(e)
}

// attempt executes a request, for which so many bytes are held, and stores the reply.
func (d *dispatcher) attempt(ctx context.Context, s *service, e *entry, request int) error {
	k := kindReply
	reply, err := d.execute(ctx, s, e)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		k, reply, err = kindRefused, refused.frames(), nil
	}
	size := bytesOf(reply)
	d.mu.Lock()
	s.bytes -= request
	d.release(request)
	if err == nil {
		s.served = true
		if k == kindRefused {
			d.counts.refused++
		}
		if d.held > 0 && d.held+size > d.options.MaxHeldBytes {
			err = errHeld
		} else {
			d.held += size
		}
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		d.mu.Lock()
		d.release(size)
		d.mu.Unlock()
	}()
	// The request was executed, and will be once more if the reply is lost. So it is
	// kept here until there is room on the disk; it also occupies one of the service's
	// places.
	retry := backoff.Backoff{Min: d.options.RetryMin, Max: d.options.RetryMax}
	for {
		err := d.store.finish(e, k, reply)
		if !errors.Is(err, errFull) {
			return err
		}
		if !wake.Pause(ctx, retry.Next()) {
			return ctx.Err()
		}
	}
}

// execute passes a request to a worker. A *RefusedError is final.
func (d *dispatcher) execute(ctx context.Context, s *service, e *entry) ([][]byte, error) {
	_, body, err := d.store.read(e)
	if errors.Is(err, ErrCorrupt) {
		return nil, &RefusedError{CodeDamaged, "the stored request is damaged"}
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.options.AttemptTimeout)
	defer cancel()
	reply, err := d.broker.execute(ctx, s.name, body)
	if err == nil && !fits(reply, d.options.MaxReplyBytes) {
		return nil, &RefusedError{CodeTooLarge, "the reply is too large to be stored"}
	}
	return reply, err
}

// fits reports whether frames are at most MaxFrames and together at most most bytes.
func fits(frames [][]byte, most int) bool {
	return len(frames) <= MaxFrames && bytesOf(frames) <= most
}

func bytesOf(frames [][]byte) (n int) {
	for _, f := range frames {
		n += len(f)
	}
	return n
}

// close ends all attempts and waits for the goroutines.
func (d *dispatcher) close() {
	d.end()
	d.running.Wait()
}

// end ends all attempts.
func (d *dispatcher) end() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
}
