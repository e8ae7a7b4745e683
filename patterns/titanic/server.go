package titanic

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"clustermap/patterns/majordomo"
)

// The services of RFC 9.
const (
	serviceRequest = "titanic.request"
	serviceReply   = "titanic.reply"
	serviceClose   = "titanic.close"
)

// Status codes of RFC 9. They are sent as bare digits, for there are clients that compare
// the whole frame.
const (
	statusOK      = "200"
	statusPending = "300"
	statusUnknown = "400"
	statusError   = "500"
)

// diskPause is for how long no request is stored after one found the disk full: to find out
// costs a look through the whole store.
const diskPause = time.Second

// A Server is a Titanic server: a worker of three services at a Majordomo broker, and a
// client of all others. All methods are safe for concurrent use.
type Server struct {
	options  Options
	store    *store
	dispatch *dispatcher
	ctx      context.Context // ends with the server
	stop     context.CancelFunc
	running  sync.WaitGroup
	workers  []*majordomo.Worker
	peers    []interface{ Close() error } // the sockets' side, in the order in which it is closed
	closing  sync.Once
	err      error // Close's

	invalid, full, expired atomic.Uint64
}

// openServer opens the store of a server that does nothing before start.
func openServer(o Options) (*Server, error) {
	s := &Server{options: o}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.dispatch = newDispatcher(dispatcherOptions{
		perService: o.PerService, attempt: o.AttemptTimeout, retryMin: o.RetryMin, retryMax: o.RetryMax,
		maxServices: o.MaxServices, maxReply: o.MaxReplyBytes, maxReplies: o.MaxBytes,
		maxHeld: o.MaxHeldBytes,
	}, nil)
	st, err := openStore(o.Dir, storeOptions{
		maxEntries: o.MaxRequests, maxBytes: o.MaxBytes, maxBatch: o.MaxBatch, pause: diskPause,
		added: s.dispatch.add, removed: s.dispatch.drop,
	})
	if err != nil {
		s.stop()
		s.dispatch.close()
		return nil, err
	}
	s.store, s.dispatch.store = st, st
	return s, nil
}

// start goes on with what waits in the store.
func (s *Server) start(b broker) {
	s.dispatch.broker = b
	for e := s.store.waiting.first; e != nil; e = e.age.next { // nobody changes the store yet
		s.dispatch.add(e)
	}
	s.running.Go(s.expire)
}

// request is titanic.request.
func (s *Server) request(_ context.Context, frames [][]byte) ([][]byte, error) {
	if len(frames) < 2 || !isServiceName(frames[0]) || !fits(frames[1:], s.options.MaxRequestBytes-len(frames[0])) {
		s.invalid.Add(1)
		return answer(statusUnknown)
	}
	service := string(frames[0])
	if !s.dispatch.admit(service) {
		s.full.Add(1)
		return answer(statusError)
	}
	defer s.dispatch.settle(service)
	id, err := s.store.put(service, frames[1:])
	if err != nil {
		if errors.Is(err, errFull) {
			s.full.Add(1)
		}
		return answer(statusError)
	}
	return answer(statusOK, []byte(id.String()))
}

// reply is titanic.reply.
func (s *Server) reply(_ context.Context, frames [][]byte) ([][]byte, error) {
	id, ok := s.uuid(frames)
	if !ok {
		return answer(statusUnknown)
	}
	e, err := s.store.look(id)
	var h header
	var body [][]byte
	if err == nil {
		h, body, err = s.store.read(e)
	}
	switch {
	case errors.Is(err, ErrPending):
		return answer(statusPending)
	case errors.Is(err, errGone):
		return answer(statusUnknown)
	case err != nil:
		return answer(statusError)
	case h.kind == kindRefused:
		return answer(statusError, body...)
	}
	return answer(statusOK, body...)
}

// close is titanic.close.
func (s *Server) close(_ context.Context, frames [][]byte) ([][]byte, error) {
	id, ok := s.uuid(frames)
	if !ok {
		return answer(statusUnknown)
	}
	if err := s.store.remove(id); err != nil {
		return answer(statusError)
	}
	return answer(statusOK)
}

func answer(status string, content ...[]byte) ([][]byte, error) {
	return append([][]byte{[]byte(status)}, content...), nil
}

// uuid reads a request that is a UUID.
func (s *Server) uuid(frames [][]byte) (UUID, bool) {
	if len(frames) == 1 {
		if id, err := parseUUID(frames[0]); err == nil {
			return id, true
		}
	}
	s.invalid.Add(1)
	return UUID{}, false
}

// isServiceName reports whether a worker can serve the name: it is printable and not
// one of the broker's own services.
func isServiceName(name []byte) bool {
	if len(name) == 0 || len(name) > majordomo.MaxServiceName || !utf8.Valid(name) || strings.HasPrefix(string(name), majordomo.ReservedPrefix) {
		return false
	}
	for _, r := range string(name) {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// expire deletes what is too old.
func (s *Server) expire() {
	const forever = 1<<63 - 1
	request, reply := s.options.RequestTTL, s.options.ReplyTTL
	if request < 0 {
		request = forever
	}
	if reply < 0 {
		reply = forever
	}
	tick := time.NewTicker(min(max(min(request, reply)/10, 10*time.Millisecond), time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		for s.ctx.Err() == nil {
			old := s.store.expired(request, reply, 1000)
			if len(old) == 0 || s.store.remove(old...) != nil {
				break // after an error at the next tick
			}
			s.expired.Add(uint64(len(old)))
		}
	}
}

// Status is a reading of a server. All counts but those of what is stored
// begin when it starts.
type Status struct {
	Waiting  int   // stored requests without a reply, those that run included
	Running  int   // requests that the broker was given
	Replies  int   // stored replies
	Bytes    int64 // of stored requests and replies
	Services int   // that stored requests wait for

	Stored   uint64 // requests that were stored
	Executed uint64 // requests that have got their reply, refused ones included
	Refused  uint64 // requests that the service refused
	Attempts uint64 // how often the broker was given a request
	Retries  uint64 // of these, how often one that it had been given before
	Expired  uint64 // requests and replies that were deleted because they were too old
	Invalid  uint64 // requests of clients that were answered 400 because of their form
	Full     uint64 // requests of clients that were answered 500 because there was no room

	Changes uint64 // requests, replies and deletions that are on the disk
	Flushes uint64 // transactions that this took
}

// Status returns a reading of the server.
func (s *Server) Status() Status {
	st := Status{Invalid: s.invalid.Load(), Full: s.full.Load(), Expired: s.expired.Load()}
	s.store.mu.Lock()
	st.Waiting, st.Replies, st.Bytes = s.store.waiting.n, s.store.done.n, s.store.bytes
	st.Stored, st.Executed = s.store.stored, s.store.executed
	st.Changes, st.Flushes = s.store.changes, s.store.commits
	s.store.mu.Unlock()
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	c := s.dispatch.counts
	st.Running, st.Attempts, st.Retries, st.Refused = c.running, c.attempts, c.retries, c.refused
	st.Services = len(s.dispatch.services)
	return st
}

// Failed is closed when the store has failed, which Err tells: the disk returned an
// error, and nobody knows what is on it. The server answers 500 to everything from
// then on. A new one, after a look at the disk, goes on with what is there.
func (s *Server) Failed() <-chan struct{} { return s.store.failed }

// Err returns why the store has failed, or nil.
func (s *Server) Err() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.err
}

// Close ends the server and returns when all its goroutines have ended. What was
// acknowledged is on the disk, and a new server goes on with it. Requests that are being
// executed will be executed again by that. It returns the error of a store that has
// failed.
func (s *Server) Close() error {
	s.closing.Do(func() {
		s.stop()
		var errs []error
		for _, p := range s.peers {
			errs = append(errs, p.Close())
		}
		s.dispatch.close()
		s.running.Wait()
		s.err = errors.Join(append(errs, s.store.close())...)
	})
	return s.err
}
