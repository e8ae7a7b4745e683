package submit

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/txn"
	"clustermap/internal/closed"
	"clustermap/internal/fifo"
)

// ErrNoTransactions is chp.ErrNoTransactions.
var ErrNoTransactions = errors.New("chp: the server does not judge conditions")

// errTooLarge is for a request that the server would not read.
var errTooLarge = errors.New("chp: the conditions and updates of the transaction are together larger than a message that the server reads")

// Requests sends a client's requests (see package txn) to the server of the present session, behind the
// updates that were staged before, and sends those again that were not answered when a
// session ended.
//
//	Start -> queue -> the session's Uplink
//	Answered -> await until the replica shows what the request was judged against -> Done
//
// It is safe for concurrent use.
type Requests struct {
	w       *Writer
	mark    txn.Mark
	sending sync.WaitGroup
	awaits  atomic.Bool // await is not empty; written under mu

	mu      sync.Mutex
	server  *Server
	uplink  Uplink               // of server; nil if it is not known to be open. Server.Uplink is the writer's
	newest  uint64               // number of the last request
	queue   fifo.Queue[*Request] // by number; those behind the first one may be answered
	unsent  int                  // of them, at the end of queue, those that were not sent in this session
	bytes   int                  // of queue
	await   []*Request           // answered, and the replica has not come as far
	runs    bool                 // a goroutine sends
	room    chan struct{}        // closed when there may be room; nil while nothing waits
	mapID   [ledger.MapIDSize]byte
	closed  bool
	scratch []byte // of run

	conditions, updates []byte // scratch of Start
}

// Request is a request that was started. Done is closed when it has ended; then Result says how.
type Request struct {
	Done chan struct{}

	answer txn.Answer
	err    error
	number uint64
	wire   []byte // nil when it was answered, or has ended
	sent   bool   // at least once
	shown  bool   // the replica has the keys that matter
	absent []byte // key that did not exist, with txn.StatusAbsent
}

// Result returns the answer, or an error. Done must be closed.
func (r *Request) Result() (*txn.Answer, error) { return &r.answer, r.err }

// Draft appends the conditions and updates of a request, which have a UUID.
type Draft func(uuid, conditions, updates []byte) (_, _ []byte)

// Start sends a request, when there is a session and room. shown says that the replica has all of
// its keys.
func (q *Requests) Start(ctx context.Context, flags byte, shown bool, draft Draft) (*Request, error) {
	if !q.w.sent(ctx.Done()) { // what was staged before goes first
		return nil, ctx.Err()
	}
	q.mu.Lock()
	for {
		switch {
		case q.closed:
			q.mu.Unlock()
			return nil, closed.CHP
		case q.server == nil:
			q.mu.Unlock()
			if err := q.w.opts.Wait(ctx); err != nil {
				return nil, err
			}
			q.mu.Lock()
			continue
		case !q.server.Transactions:
			q.mu.Unlock()
			return nil, ErrNoTransactions
		case q.queue.Len() > 0 && (q.newest-(*q.queue.At(0)).number >= ledger.Window-1 || q.bytes >= q.w.opts.SendQueue):
			if q.room == nil {
				q.room = make(chan struct{})
			}
			room := q.room
			q.mu.Unlock()
			select {
			case <-room:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			q.mu.Lock()
			continue
		}
		break
	}
	defer q.mu.Unlock()
	n := q.newest + 1
	uuid := q.mark.UUID(n)
	r := txn.Request{Number: n, Since: q.w.opts.Sequence(), Flags: flags}
	q.conditions, q.updates = draft(uuid[:], q.conditions[:0], q.updates[:0])
	r.Conditions, r.Updates = q.conditions, q.updates
	if cap(q.conditions)+cap(q.updates) > stageSize {
		q.conditions, q.updates = nil, nil
	}
	one := &Request{Done: make(chan struct{}), number: n, shown: shown, wire: r.Append(make([]byte, 0, r.Size()))}
	if len(one.wire) > max(q.server.MaxValue, txn.MaxMessage) {
		return nil, errTooLarge
	}
	q.newest = n
	q.queue.Push(one)
	q.bytes += len(one.wire)
	q.unsent++
	if !q.runs {
		q.push()
	}
	return one, nil
}

// push sends what is not sent: itself if that is a request that comes alone, for which there is room
// at once, and otherwise in a goroutine, which sends many at a time. mu must be held.
func (q *Requests) push() {
	if u := q.uplink; q.queue.Len() == 1 && u != nil && u.Known() && u.Ready() == nil {
		one := q.queue.Front()
		if len(one.wire) <= aloneBytes && u.Request(false, one.wire, 1) == nil {
			one.sent, q.unsent = true, 0
			return
		}
	}
	q.runs = true
	q.sending.Go(q.run)
}

// run sends requests until all are sent, or the session ends.
func (q *Requests) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.unsent > 0 && q.server != nil && !q.closed {
		s := q.server
		q.mu.Unlock()
		u, err := q.w.uplinkOf(s)
		if err == nil && q.w.sent(s.Session.Over()) { // in a new session those are sent again, too
			err = u.Ready()
		}
		if err != nil {
			s.Session.Fail(err) // it is failing already, unless the collector does not subscribe
			<-s.Session.Over()
		}
		q.mu.Lock()
		if q.server != s || err != nil {
			continue
		}
		q.uplink = u
		first, n := q.queue.Len()-q.unsent, 0
		wire := q.scratch[:0]
		for n < q.unsent && (n == 0 || len(wire) < stageSize) {
			one := *q.queue.At(first + n)
			one.sent = true
			wire = append(wire, one.wire...)
			n++
		}
		q.unsent -= n
		q.mu.Unlock()
		_ = u.Request(true, wire, n) // fails only when the session ends: then they are sent again
		q.mu.Lock()
		if q.scratch = wire; cap(wire) > 4*stageSize {
			q.scratch = nil
		}
	}
	q.runs = false
}

// begin lets requests go to a server, until end.
func (q *Requests) begin(s *Server, reply *ledger.Reply) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.server, q.uplink = s, s.Uplink
	if q.closed {
		return
	}
	q.show() // what the answers spoke of is in this replica, or is lost
	switch {
	case !s.Transactions || reply == nil:
		q.fail(ErrNoTransactions)
		return
	case reply.Map() != q.mapID:
		q.fail(nil)
	}
	q.mapID = reply.Map()
	q.queue.DeleteFunc(func(one *Request) bool { return one.wire == nil })
	q.unsent = q.queue.Len()
	for i := range q.unsent {
		if one := *q.queue.At(i); one.sent {
			txn.Again(one.wire)
		}
	}
	if q.unsent > 0 && !q.runs {
		q.runs = true
		q.sending.Go(q.run)
	}
}

// end makes requests wait for the next session.
func (q *Requests) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.server, q.uplink = nil, nil
}

// fail ends requests: those that were sent as uncertain, and the others for a reason, if there is
// one. mu must be held.
func (q *Requests) fail(reason error) {
	kept := fifo.Queue[*Request]{}
	for q.queue.Len() > 0 {
		one := q.queue.Pop()
		switch {
		case one.wire == nil: // it was answered
		case one.sent:
			q.finish(one, ledger.ErrUncertain)
		case reason != nil:
			q.finish(one, reason)
		default:
			kept.Push(one)
		}
	}
	q.queue = kept
	q.unsent = kept.Len()
	q.signalRoom()
}

// Fail ends all requests, because the server does not accept this client.
func (q *Requests) Fail(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.show() // there may be no other replica
	q.fail(reason)
}

// close ends all requests, present and future.
func (q *Requests) close() {
	q.mu.Lock()
	q.closed = true
	for q.queue.Len() > 0 {
		if one := q.queue.Pop(); one.wire != nil {
			q.finish(one, closed.CHP)
		}
	}
	q.unsent = 0
	q.show()
	q.signalRoom()
	q.mu.Unlock()
}

// Wait waits until nothing is being sent. The session must have ended, and the writer.
func (q *Requests) Wait() { q.sending.Wait() }

// finish ends a request. mu must be held.
func (q *Requests) finish(one *Request, err error) {
	q.free(one)
	one.err = err
	close(one.Done)
}

// free marks a request as one that is not sent again. mu must be held.
func (q *Requests) free(one *Request) {
	q.bytes -= len(one.wire)
	one.wire = nil
}

// show ends the requests that wait for the replica. mu must be held.
func (q *Requests) show() {
	for _, one := range q.await {
		q.finish(one, nil)
	}
	q.await = nil
	q.awaits.Store(false)
}

func (q *Requests) signalRoom() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// Answered handles answers of a server, during a session.
func (q *Requests) Answered(from Session, answers []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.server == nil || q.server.Session != from {
		return
	}
	var a txn.Answer
	for ok := true; len(answers) > 0; {
		if answers, ok = a.Next(answers); !ok {
			return
		}
		one := q.find(a.Number)
		if one == nil || one.wire == nil {
			continue
		}
		if a.Status == txn.StatusAbsent {
			one.absent = keyOf(one.wire, a.Condition)
		}
		q.free(one)
		one.answer = a
		one.answer.Value = append([]byte(nil), a.Value...)
		if one.shown && (a.Status <= txn.StatusConflict || a.Status == txn.StatusAbsent) {
			q.await = append(q.await, one)
		} else {
			q.finish(one, nil)
		}
	}
	for q.queue.Len() > q.unsent && (*q.queue.At(0)).wire == nil {
		q.queue.Pop()
	}
	q.signalRoom()
	q.awaits.Store(len(q.await) > 0) // before the sequence is loaded: see seen
	q.settle()
}

// keyOf returns a copy of the key of a condition of a request in wire form, or nil.
func keyOf(wire []byte, condition int) []byte {
	var r txn.Request
	var c txn.Condition
	if r.Parse(wire) {
		for rest, ok := r.Conditions, true; ok && len(rest) > 0; condition-- {
			if rest, ok = c.Next(rest); ok && condition == 0 {
				return bytes.Clone(c.Key)
			}
		}
	}
	return nil
}

// find returns the request with a number that was sent in this session, or nil. mu must be held.
func (q *Requests) find(number uint64) *Request {
	n := q.queue.Len() - q.unsent
	if n == 0 || number < (*q.queue.At(0)).number {
		return nil
	}
	// Numbers follow each other, but for those that were given up.
	i := int(min(number-(*q.queue.At(0)).number, uint64(n-1)))
	for i > 0 && (*q.queue.At(i)).number > number {
		i--
	}
	if one := *q.queue.At(i); one.number == number {
		return one
	}
	return nil
}

// settle ends those requests that were answered, and whose outcome the replica shows. mu must be
// held.
func (q *Requests) settle() {
	sequence := q.w.opts.Sequence()
	kept := q.await[:0]
	for _, one := range q.await {
		if one.answer.Sequence > sequence && (one.absent == nil || q.w.opts.Has(one.absent)) {
			kept = append(kept, one)
			continue
		}
		q.finish(one, nil)
	}
	clear(q.await[len(kept):])
	q.await = kept
	q.awaits.Store(len(kept) > 0)
}

// seen is called when the replica has applied updates, or was replaced.
func (q *Requests) seen() {
	if !q.awaits.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
}

// Forget gives a request up. One that was not sent is never sent.
func (q *Requests) Forget(r *Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	is := func(one *Request) bool { return one == r }
	switch {
	case r.wire == nil:
		q.await = slices.DeleteFunc(q.await, is)
		q.awaits.Store(len(q.await) > 0)
	case !r.sent:
		q.queue.DeleteFunc(is)
		q.free(r)
		q.unsent--
		q.signalRoom()
	}
}

// sent waits until all updates that were staged before are sent, or none will be. It returns false if
// done is closed before.
func (w *Writer) sent(done <-chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := uint64(0)
	if w.stage != nil {
		last = w.stage.last()
	}
	for w.unsent() && w.turn.first+uint64(w.turn.sent.messages) <= last && !w.closed {
		if w.progress == nil {
			w.progress = make(chan struct{})
		}
		progress := w.progress
		w.wakeRun()
		w.mu.Unlock()
		select {
		case <-progress:
			w.mu.Lock()
		case <-done:
			w.mu.Lock()
			return false
		}
	}
	return true
}

// uplinkOf returns the uplink of a session, which it opens if necessary.
func (w *Writer) uplinkOf(s *Server) (Uplink, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.server != s:
		return nil, context.Canceled
	case s.Uplink == nil:
		if err := w.open(); err != nil {
			return nil, err
		}
	}
	return s.Uplink, nil
}
