// Package submit sends a client's updates: what [Writer.Put] takes goes to the server of the
// present session, in order and, if the server acknowledges updates, exactly once.
//
//	Put -> a stage -> run -> the session's Uplink -> the server's collector
//	the server's replies, and what comes back -> the account -> waits end, stages are freed
//
// It knows no sockets: a [Session] gives it the way to the collector.
package submit

import (
	"context"
	"sync"
	"sync/atomic"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/closed"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// Options configures a [Writer].
type Options struct {
	// SendQueue bounds the updates that are staged or kept, in bytes. MaxValue is the
	// largest value for a server that does not say which it accepts, in bytes.
	SendQueue, MaxValue int

	// Subtrees have the keys whose updates come back.
	Subtrees subtree.Set

	// Sequence returns the sequence up to which the replica has applied updates.
	Sequence func() int64

	// Has reports whether the replica has a key.
	Has func(key []byte) bool

	// Wait waits until there is a session. After its error an update is not sent.
	Wait func(ctx context.Context) error
}

// Session is a client's session with one server.
type Session interface {
	// Open begins to connect to the server's collector. It is called once at most, if
	// Server.Uplink was nil, and between Begin and End.
	Open() (Uplink, error)

	// Fail ends the session. Over is closed when it has ended.
	Fail(error)
	Over() <-chan struct{}
}

// Uplink is the way to the collector of one server.
type Uplink interface {
	// Ready waits until the collector takes updates, or returns an error. Known reports
	// whether it need not wait.
	Ready() error
	Known() bool

	// Send queues updates, which lie in chunk, and behind them with ask a question. If wait is
	// true, it waits for room until GiveUp; otherwise an update comes alone. After an error
	// nothing was sent.
	Send(wait bool, wire []byte, messages int, chunk *buf.Chunk, ask bool) error

	// Request queues requests. If wait is true, it waits for room until GiveUp. After an error
	// nothing was sent. It may be called beside Send.
	Request(wait bool, wire []byte, messages int) error

	// GiveUp ends the waits of Ready, Request and Send, present and future.
	GiveUp()

	// Leave waits for done, for a short time, and then until everything queued is written,
	// for a short time, too. A connection that breaks meanwhile is no fault.
	Leave(done <-chan struct{})
}

// Server is what a session knows of its server when updates begin to go there.
type Server struct {
	Session         Session
	Uplink          Uplink        // nil if it is to be opened
	Ours            bool          // of this module
	ReportsRefusals bool          // every one
	Transactions    bool          // it judges requests
	Leases          bool          // it knows leases
	MaxValue        int           // the largest value that it accepts, in bytes; 0 if unknown
	Reply           *ledger.Reply // the first one in this session, or nil
	Sequence        int64         // to which the replica was brought
}

// Writer sends a client's updates. Put only appends its KVSET, in wire form, to a
// stage, under a mutex that is never held while a goroutine waits. Another goroutine
// takes everything that was appended meanwhile and lends it to the uplink, so the
// cost of the socket is paid once for many updates. An update that comes alone is lent by
// Put itself; see push.
//
// Which updates are settled, and which are sent again, is in the account (see
// [ledger.Account]). If the server tells how far it has come, updates that were sent are kept
// until they are settled. If they are not when the session ends, and the next session's server
// has the same map, sending continues after the last one that this server has accepted: the
// rest is sent again, the same bytes in the same order, before anything new. With another map,
// or a server that tells nothing, they are uncertain and never sent again.
//
// Updates that were not sent when a session ends always go to the server of the next
// one.
//
// The stages are a list. Settled ones at the beginning are freed; then come those that
// were sent, then those that were not; updates are appended to the last one. One stage
// can be all of that at once. A repetition begins by moving back the marks up to which
// they were sent.
type Writer struct {
	Requests Requests

	opts  Options
	ready chan struct{} // wakes run, capacity 1
	ended chan struct{} // closed when run has ended; nil before it runs
	size  int           // of a stage: bytes

	awaited atomic.Bool // account.Waiting; written under mu
	writing atomic.Bool // there have been updates, and the server takes them
	echoes  *echoes     // nil if the server acknowledges updates; owned by the session

	mu       sync.Mutex
	account  ledger.Account
	server   *Server       // of the session that is ACTIVE; nil between two
	first    *stage        // the oldest stage; nil if there is none
	turn     *stage        // the stage that is sent next, or was sent last; nil with first
	stage    *stage        // the newest, which Set appends to; nil with first
	bytes    int           // of all stages
	sending  bool          // run is sending
	idle     chan struct{} // closed when run stops sending; nil while no goroutine waits
	room     chan struct{} // closed when there may be room; nil while no goroutine waits
	progress chan struct{} // closed with it, and when updates were sent; nil while no goroutine waits
	asleep   bool          // run waits on ready, and no caller sends in its place
	alone    wake.Idle     // between calls of push with run asleep
	dropped  []uint64      // numbers of staged updates that must not be sent
	uuids    uuidMaker
	closed   bool
}

// New returns a writer.
func New(o Options) *Writer {
	w := &Writer{opts: o, ready: make(chan struct{}, 1), size: min(stageSize, max(o.SendQueue/4, buf.Small))}
	w.uuids.uuidSecret = newUUIDSecret()
	w.Requests.w, w.Requests.mark = w, txn.NewMark()
	return w
}

// Writing reports whether the client sends updates: then a session begins with an uplink.
func (w *Writer) Writing() bool { return w.writing.Load() }

// Begin lets updates go to a server, until End. After Close it has no effect.
//
// One goroutine at a time calls Begin, Applied, Beat and End.
func (w *Writer) Begin(s *Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return // close bounds its wait for run only for the session that it found
	}
	reply := s.Reply
	if !s.Ours { // others do not count
		reply = nil
	}
	w.account.Begin(s.ReportsRefusals && s.Ours)
	w.resume(w.account.Reconcile(reply, s.Sequence))
	w.echoes = nil
	if reply == nil || reply.Runs == nil {
		w.echoes = &echoes{writer: w, uuids: uuidMaker{uuidSecret: w.uuids.uuidSecret}}
	}
	w.server = s
	w.awaited.Store(false)
	w.reclaim()
	w.signalRoom()
	w.wakeRun()
	w.Requests.begin(s, reply)
}

// resume moves the position from which updates are sent to number next. mu must be held.
func (w *Writer) resume(next uint64) {
	w.turn = nil
	for s := w.first; s != nil; s = s.next {
		s.sent = s.seek(next)
		if w.turn == nil && s.sent.messages < s.messages {
			w.turn = s
			next = s.first + uint64(s.sent.messages)
		}
	}
	if w.turn == nil {
		w.turn, next = w.stage, w.account.Sent()+1
	}
	// What is not sent again will not be settled any more.
	w.account.Lose(min(next-1, w.account.Sent()), ledger.ErrUncertain)
}

// End makes updates wait for the next session. Updates that were sent and have not come
// back are kept, or become uncertain.
func (w *Writer) End() {
	w.Requests.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server != nil && w.server.Uplink != nil {
		w.server.Uplink.GiveUp() // so that run does not go on sending for long
	}
	w.server = nil
	for w.sending {
		if w.idle == nil {
			w.idle = make(chan struct{})
		}
		idle := w.idle
		w.mu.Unlock()
		<-idle
		w.mu.Lock()
	}
	w.account.Leave()
}

// open opens the uplink of the current session, and starts run. mu must be held, and
// there must be a session.
func (w *Writer) open() error {
	u, err := w.server.Session.Open()
	if err != nil {
		return err
	}
	w.server.Uplink = u
	w.writing.Store(true)
	if w.ended == nil {
		w.ended = make(chan struct{})
		go w.run()
	}
	w.wakeRun()
	return nil
}

// Fail discards all stages, because the server does not accept this client's updates.
// Updates that were sent in an earlier session are uncertain. The next Put tries again.
func (w *Writer) Fail(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing.Store(false)
	w.Requests.Fail(reason)
	w.account.Fail(reason)
	w.clear()
	w.signalRoom()
}

// Flush returns a wait for all updates so far. If all are settled it returns nil and the
// errors for this call.
func (w *Writer) Flush() (*ledger.Wait, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait, err := w.account.Flush(closed.CHP)
	if wait != nil {
		w.wakeRun() // to ask
	}
	return wait, err
}

// GiveUp ends a wait of Put. An update that was not sent yet is never sent.
func (w *Writer) GiveUp(wait *ledger.Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Forget(wait, nil)
	if n := wait.Number(); n > w.account.Sent() {
		w.dropped = append(w.dropped, n)
	}
}

// Forget ends a wait for all updates, or the waits of a group.
func (w *Writer) Forget(wait *ledger.Wait, all *ledger.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Forget(wait, all)
}

// Finish ends all waits, present and future: the client is closed.
func (w *Writer) Finish() {
	w.Requests.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Close(closed.CHP)
}

// Close sends the stages as far as possible within a short time, and ends the writer.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	w.signalRoom()
	w.wakeRun()
	done, s := w.ended, w.server
	var u Uplink
	if s != nil {
		u = s.Uplink
	}
	w.mu.Unlock()
	if done == nil {
		return
	}
	if u != nil {
		u.Leave(done)
	}
	<-done
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clear()
}

// wakeRun wakes run if it sleeps. mu must be held.
func (w *Writer) wakeRun() {
	if w.asleep {
		w.asleep = false
		wake.Signal(w.ready)
	}
}

// signalRoom wakes the goroutines that wait for room, or until updates are sent. mu must be held.
func (w *Writer) signalRoom() {
	for _, c := range []*chan struct{}{&w.room, &w.progress} {
		if *c != nil {
			close(*c)
			*c = nil
		}
	}
}

// Reply handles a reply of the server during a session.
func (w *Writer) Reply(from Session, r *ledger.Reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server == nil || w.server.Session != from {
		return
	}
	if w.account.Reply(r) {
		w.awaited.Store(w.account.Waiting()) // before the sequence is loaded: see seen
		w.account.Seen(w.opts.Sequence())
	}
	w.awaited.Store(w.account.Waiting())
	w.reclaim()
	if w.asks(w.account.Sent()) {
		w.wakeRun() // what was sent since the question is kept too
	}
}

// Refused handles the refusal of an update during a session.
func (w *Writer) Refused(from Session, uuid []byte, reason kvmsg.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server == nil || w.server.Session != from {
		return
	}
	first, _ := w.account.Open()
	w.account.Refuse(uuidNumber(uuid, first), reason)
	w.reclaim()
}

// Applied is called when the replica has applied a batch of KVPUBs: then it shows them when
// a wait ends.
func (w *Writer) Applied(wire []byte, spans []buf.Span) {
	w.Requests.seen()
	switch {
	case !w.writing.Load():
	case w.echoes != nil:
		w.echoes.came(wire, spans)
	default:
		w.seen()
	}
}

// Beat is called at each heartbeat of the server.
func (w *Writer) Beat() {
	if w.echoes == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Beat()
	w.reclaim()
}

// seen settles the updates that a server of this package has acknowledged, and that the
// replica now shows.
func (w *Writer) seen() {
	if !w.awaited.Load() { // nearly always, while others write
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Seen(w.opts.Sequence())
	w.awaited.Store(w.account.Waiting())
	w.reclaim()
}

// Made reports whether a record is an update of this client with a number from 1 to last.
func (w *Writer) Made(r kvmsg.Record, last uint64) bool {
	own := uuidMaker{uuidSecret: w.uuids.uuidSecret}
	_, made := own.number(r, 1, last)
	return made
}

// Pending returns the bytes of the updates that are staged or kept, and the number of waits.
func (w *Writer) Pending() (bytes, waits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes, w.account.Waits()
}

// Inspect calls f with the server of the present session, or nil: tests change it.
func (w *Writer) Inspect(f func(*Server)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.server)
}
