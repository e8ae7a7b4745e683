package titanic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// Status codes of RFC 9. They are sent without text, since some clients compare the whole
// frame.
const (
	statusOK      = "200"
	statusPending = "300"
	statusUnknown = "400"
	statusError   = "500"
)

// A Server is a Titanic server: a worker for three services at a Majordomo broker, and a
// client of all other services. All methods are safe for concurrent use.
type Server struct {
	options  Options
	store    *store
	dispatch *dispatcher
	ctx      context.Context // ends with the server
	stop     context.CancelFunc
	running  sync.WaitGroup
	workers  []*majordomo.Worker
	client   *majordomo.Client // nil in tests
	closing  sync.Once
	err      error // of Close

	invalid, full, expired atomic.Uint64
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (s *Server) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "titanic.Server") }

// openServer returns a server with an open store. It is idle until start.
func openServer(o Options) (*Server, error) {
	s := &Server{options: o}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.dispatch = newDispatcher(o)
	st, err := openStore(o, s.dispatch.add, s.dispatch.drop)
	if err != nil {
		s.stop()
		s.dispatch.close()
		return nil, err
	}
	s.store, s.dispatch.store = st, st
	return s, nil
}

// start starts to execute the stored requests.
func (s *Server) start(b broker) {
	s.dispatch.broker = b
	for e := range s.store.waiting.All() { // the store does not change yet
		s.dispatch.add(e)
	}
	s.running.Go(s.expire)
	s.running.Go(func() {
		select {
		case <-s.store.failed: // the replies could not be stored
			s.dispatch.end()
		case <-s.ctx.Done():
		}
	})
}

// request implements titanic.request.
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

// reply implements titanic.reply.
func (s *Server) reply(_ context.Context, frames [][]byte) ([][]byte, error) {
	id, ok := s.uuid(frames)
	if !ok {
		return answer(statusUnknown)
	}
	e, err := s.store.lookup(id)
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

// close implements titanic.close.
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

// uuid parses a request that consists of a UUID, and counts invalid ones.
func (s *Server) uuid(frames [][]byte) (UUID, bool) {
	if len(frames) == 1 {
		if id, err := parseUUID(frames[0]); err == nil {
			return id, true
		}
	}
	s.invalid.Add(1)
	return UUID{}, false
}

// isServiceName reports whether a name is printable and a worker can register for it.
func isServiceName(name []byte) bool {
	return len(name) > 0 && len(name) <= majordomo.MaxServiceName && utf8.Valid(name) && !bytes.HasPrefix(name, []byte(majordomo.ReservedPrefix)) &&
		!bytes.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// expire deletes expired requests and replies.
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
				break // after an error, try again at the next tick
			}
			s.expired.Add(uint64(len(old)))
		}
	}
}

// Status is the status of a server. The counters start at 0 when it starts.
type Status struct {
	Waiting  int   // stored requests without a reply, including running ones
	Running  int   // requests at the broker
	Replies  int   // stored replies
	Bytes    int64 // of stored requests and replies
	Services int   // for which stored requests wait

	Stored   uint64 // requests stored
	Executed uint64 // replies stored, including errors
	Refused  uint64 // requests to which the worker replied with an error
	Attempts uint64 // times a request was sent to the broker
	Retries  uint64 // attempts that were not the first one of their request
	Expired  uint64 // requests and replies that expired
	Invalid  uint64 // clients' requests answered 400 because they were invalid
	Full     uint64 // clients' requests answered 500 because there was no room

	Changes uint64 // requests, replies and deletions written to disk
	Flushes uint64 // transactions for these changes
}

// Status returns the current status.
func (s *Server) Status() Status {
	st := Status{Invalid: s.invalid.Load(), Full: s.full.Load(), Expired: s.expired.Load()}
	s.store.mu.Lock()
	st.Waiting, st.Replies, st.Bytes = s.store.waiting.Len(), s.store.done.Len(), s.store.bytes
	st.Stored, st.Executed = s.store.count.stored, s.store.count.executed
	st.Changes, st.Flushes = s.store.count.changes, s.store.count.commits
	s.store.mu.Unlock()
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	c := s.dispatch.counts
	st.Running, st.Attempts, st.Retries, st.Refused = c.running, c.attempts, c.retries, c.refused
	st.Services = len(s.dispatch.services)
	return st
}

// Failed returns a channel that is closed when the store has failed (ErrFailed). The
// server then answers 500 to all requests. Check the disk and start a new server, which
// continues with the stored requests.
func (s *Server) Failed() <-chan struct{} { return s.store.failed }

// Err returns the reason why the store has failed, or nil.
func (s *Server) Err() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.err
}

// Close ends the server and waits for its goroutines. A new server continues with the
// stored requests, and executes those again that are being executed now. Close returns
// the error of a store that has failed.
func (s *Server) Close() error {
	s.closing.Do(func() {
		s.stop()
		var errs []error
		for _, w := range s.workers {
			errs = append(errs, w.Close())
		}
		if s.client != nil {
			errs = append(errs, s.client.Close())
		}
		s.dispatch.close()
		s.running.Wait()
		s.err = errors.Join(append(errs, s.store.close())...)
	})
	return s.err
}
