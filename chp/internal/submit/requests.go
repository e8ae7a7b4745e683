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

// atOnce is the number of requests of a group that Start queues while nothing else can.
const atOnce = 256

// ErrNoLeases is chp.ErrNoLeases.
var ErrNoLeases = errors.New("chp: the server knows no leases")

// errTooLarge is for a request that the server would not read.
var errTooLarge = errors.New("chp: the conditions and updates of the transaction are together larger than a message that the server reads")

// Requests sends a client's requests (see package txn) to the server of the present session, behind the
// updates that were staged before, and sends those again that were not answered when a
// session ended.
//
//	Start -> queue -> the session's Uplink
//	Answered -> await until the replica shows what the requests of a group were judged against -> Done
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
	queue   fifo.Queue[*Request] // by number; those behind the first one may have ended
	unsent  int                  // of them, at the end of queue, those that were not sent in this session
	bytes   int                  // of queue
	await   []*Group             // answered, and the replica has not come as far
	shows   uint64               // counts the calls of show
	runs    bool                 // a goroutine sends
	room    chan struct{}        // closed when there may be room; nil while nothing waits
	mapID   [ledger.MapIDSize]byte
	closed  bool
	scratch []byte // of run
}

// Request is a request in a group.
type Request struct {
	// Wire is the request in wire form, which Start completes (txn.Stamp). Shown says that the
	// replica has all of its keys.
	Wire  []byte
	Shown bool

	// Leases says that the request is for a server that knows leases only. Behind its Own conditions
	// come those of the leases to which it attaches keys.
	Leases bool
	Own    int

	group  *Group // nil if it was given up
	number uint64
	open   bool // it has not ended: neither answered nor failed
	sent   bool // at least once
	answer txn.Answer
	err    error
}

// Result returns the answer, or an error. The group's Done must be closed, or the group given up.
func (r *Request) Result() (*txn.Answer, error) { return &r.answer, r.err }

// Failed reports whether the updates were not made, or may not have been.
func (r *Request) Failed() bool { return r.err != nil || r.answer.Status != txn.StatusMade }

// ConditionKey returns the key of a condition, or nil.
func (r *Request) ConditionKey(condition int) []byte {
	var q txn.Request
	var c txn.Condition
	if q.Parse(r.Wire) {
		for rest, ok := q.Conditions, true; ok && len(rest) > 0; condition-- {
			if rest, ok = c.Next(rest); ok && condition == 0 {
				return c.Key
			}
		}
	}
	return nil
}

// Group is some requests whose outcomes are waited for together. Each is judged by itself.
type Group struct {
	Requests []Request
	Done     chan struct{} // closed when all have ended; then their Result says how

	open int // requests that have not ended

	// What the replica must show before Done, of the answers since the last call of
	// Requests.show.
	shows    uint64
	sequence int64
	absent   []*Request // it must have come to their sequences, or not have the keys of their conditions
}

// Start sends the requests of a group in order, when there is a session and room. Done is a new
// channel then. It returns the error of the first one that it could not send, which those behind it
// have, too.
func (q *Requests) Start(ctx context.Context, g *Group) error {
	var err error
	if !q.w.sent(ctx.Done()) { // what was staged before goes first
		err = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	*g = Group{Requests: g.Requests, Done: make(chan struct{}), open: len(g.Requests), absent: g.absent[:0], shows: q.shows}
	since := int64(0)
	for i := range g.Requests {
		one := &g.Requests[i]
		one.group, one.open, one.sent, one.err = g, true, false, nil
		if i%atOnce == 0 { // let those go that are ready, and others in
			q.push()
			q.mu.Unlock()
			since = q.w.opts.Sequence()
			q.mu.Lock()
		}
		if err == nil {
			err = q.admit(ctx, one)
		}
		if q.bytes += len(one.Wire); err != nil {
			q.finish(one, err)
			continue
		}
		q.newest++
		one.number = q.newest
		txn.Stamp(one.Wire, q.mark, one.number, since)
		q.queue.Push(one)
		q.unsent++
	}
	q.push()
	if len(g.Requests) == 0 {
		close(g.Done)
	}
	if err != nil { // the last one may have ended when the others were answered: it waits for the replica now
		q.awaits.Store(len(q.await) > 0)
		q.settle()
	}
	return err
}

// admit waits until a request may be queued. mu must be held, and is free meanwhile.
func (q *Requests) admit(ctx context.Context, one *Request) error {
	size := len(one.Wire)
	for {
		switch {
		case q.closed:
			return closed.CHP
		case q.server == nil:
			q.mu.Unlock()
			err := q.w.opts.Wait(ctx)
			q.mu.Lock()
			if err != nil {
				return err
			}
			continue
		case !q.server.Transactions:
			if one.Leases {
				return ErrNoLeases
			}
			return ErrNoTransactions
		case one.Leases && !q.server.Leases:
			return ErrNoLeases
		case size > max(q.server.MaxValue, txn.MaxMessage):
			return errTooLarge
		case q.queue.Len() > 0 && (q.newest-(*q.queue.At(0)).number >= ledger.Window-1 || q.bytes >= q.w.opts.SendQueue):
			q.push()
			if q.room == nil {
				q.room = make(chan struct{})
			}
			room := q.room
			q.mu.Unlock()
			var err error
			select {
			case <-room:
			case <-ctx.Done():
				err = ctx.Err()
			}
			q.mu.Lock()
			if err != nil {
				return err
			}
			continue
		}
		return nil
	}
}

// push sends what is not sent: itself if that is a request that comes alone, for which there is room
// at once, and otherwise in a goroutine, which sends many at a time. mu must be held.
func (q *Requests) push() {
	if q.runs || q.unsent == 0 {
		return
	}
	if u := q.uplink; q.queue.Len() == 1 && u != nil && u.Known() && u.Ready() == nil {
		one := q.queue.Front()
		if len(one.Wire) <= aloneBytes && u.Request(false, one.Wire, 1) == nil {
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
			wire = append(wire, one.Wire...)
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
	q.queue.DeleteFunc(func(one *Request) bool {
		if !one.open {
			return true
		}
		if !one.Leases || s.Leases {
			return false
		}
		err := ErrNoLeases
		if one.sent {
			err = ledger.ErrUncertain
		}
		q.finish(one, err)
		return true
	})
	q.signalRoom()
	q.unsent = q.queue.Len()
	for i := range q.unsent {
		if one := *q.queue.At(i); one.sent {
			txn.Again(one.Wire)
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
		case !one.open:
		case one.sent:
			q.finish(one, ledger.ErrUncertain)
		case reason == ErrNoTransactions && one.Leases:
			q.finish(one, ErrNoLeases)
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
		if one := q.queue.Pop(); one.open {
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

// finish ends a request with an error. mu must be held.
func (q *Requests) finish(one *Request, err error) {
	one.err = err
	q.over(one)
}

// show ends the groups that wait for the replica. Those with requests that have not ended do not
// wait for it because of the answers so far. mu must be held.
func (q *Requests) show() {
	for _, g := range q.await {
		close(g.Done)
	}
	q.await = nil
	q.awaits.Store(false)
	q.shows++
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
		at := q.find(a.Number)
		if at < 0 || !(*q.queue.At(at)).open {
			continue
		}
		one := q.leave(at)
		one.answer = a
		one.answer.Value = append([]byte(nil), a.Value...)
		if g := one.group; g != nil {
			g.judged(one, q.shows)
		}
		q.over(one)
	}
	q.signalRoom()
	q.awaits.Store(len(q.await) > 0) // before the sequence is loaded: see seen
	q.settle()
}

// judged notes what the replica must show for the answer to a request.
func (g *Group) judged(one *Request, shows uint64) {
	if g.shows != shows {
		g.shows, g.sequence, g.absent = shows, 0, g.absent[:0]
	}
	switch a := &one.answer; {
	case !one.Shown:
	case a.Status == txn.StatusAbsent:
		g.absent = append(g.absent, one)
	case a.Status <= txn.StatusConflict:
		g.sequence = max(g.sequence, a.Sequence)
	}
}

// over records that a request has ended, and with the last one of a group waits for the replica, if it must
// show something. mu must be held.
func (q *Requests) over(one *Request) {
	q.bytes -= len(one.Wire)
	one.open = false
	g := one.group
	if g == nil {
		return
	}
	if g.open--; g.open > 0 {
		return
	}
	if g.shows == q.shows && (g.sequence > 0 || len(g.absent) > 0) {
		q.await = append(q.await, g)
		return
	}
	close(g.Done)
}

// find returns where the request with a number is that was sent in this session, or -1. mu must be held.
func (q *Requests) find(number uint64) (at int) {
	n := q.queue.Len() - q.unsent
	if n == 0 || number < (*q.queue.At(0)).number {
		return -1
	}
	// Numbers follow each other, but for those that were given up.
	i := int(min(number-(*q.queue.At(0)).number, uint64(n-1)))
	for i > 0 && (*q.queue.At(i)).number > number {
		i--
	}
	if (*q.queue.At(i)).number == number {
		return i
	}
	return -1
}

// leave removes a request that was sent in this session, before it ends: then its group may be started again, in the
// same memory. Behind the first one another takes its place. mu must be held.
func (q *Requests) leave(at int) *Request {
	one := *q.queue.At(at)
	if at > 0 {
		*q.queue.At(at) = &Request{number: one.number, sent: true}
		return one
	}
	q.queue.Pop()
	for q.queue.Len() > q.unsent && !q.queue.Front().open {
		q.queue.Pop()
	}
	return one
}

// settle ends those groups that were answered, and whose outcomes the replica shows. mu must be
// held.
func (q *Requests) settle() {
	sequence := q.w.opts.Sequence()
	kept := q.await[:0]
	for _, g := range q.await {
		if g.sequence > sequence || slices.ContainsFunc(g.absent, func(one *Request) bool {
			return one.answer.Sequence > sequence && q.w.opts.Has(one.ConditionKey(one.answer.Condition))
		}) {
			kept = append(kept, g)
			continue
		}
		close(g.Done)
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

// Forget gives a group up: those of its requests that have not ended get an error, and what was not
// sent is never sent. What was goes on without the group, in memory of its own.
func (q *Requests) Forget(g *Group, reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	unsent := 0
	for i := range q.queue.Len() {
		at := q.queue.At(i)
		one := *at
		if one.group != g || !one.open {
			continue
		}
		if one.sent {
			*at = &Request{Wire: bytes.Clone(one.Wire), Leases: one.Leases, number: one.number, open: true, sent: true}
		} else {
			q.bytes -= len(one.Wire)
			unsent++
		}
		one.err, one.open = reason, false
	}
	if unsent > 0 {
		q.queue.DeleteFunc(func(one *Request) bool { return !one.open && !one.sent })
		q.unsent -= unsent
		q.signalRoom()
	}
	q.await = slices.DeleteFunc(q.await, func(other *Group) bool { return other == g })
	q.awaits.Store(len(q.await) > 0)
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
