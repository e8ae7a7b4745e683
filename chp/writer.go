package chp

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// writer sends a client's updates. Set only appends its KVSET, in wire form, to a
// stage, under a mutex that is never held while a goroutine waits. Another goroutine
// takes everything that was appended meanwhile and lends it to the PUB socket, so the
// cost of the socket is paid once for many updates.
//
// The sockets belong to the session (see [uplink]). Which updates are settled, and which
// are sent again, is in the account (see [ledger.Account]). If the server tells how far it
// has come, updates that were sent are kept until they are settled. If they are not when
// the session ends, and the next session's server has the same map, sending continues
// after the last one that this server has accepted: the rest is sent again, the same bytes
// in the same order, before anything new. With another map, or a server that tells
// nothing, they are uncertain and never sent again.
//
// Updates that were not sent when a session ends always go to the server of the next
// one.
//
// The stages are a list. Settled ones at the beginning are freed; then come those that
// were sent, then those that were not; updates are appended to the last one. One stage
// can be all of that at once. A repetition begins by moving back the marks up to which
// they were sent.
type writer struct {
	client *Client
	ready  chan struct{} // wakes run, capacity 1
	ended  chan struct{} // closed when run has ended; nil before it runs
	size   int           // of a stage: bytes

	awaited atomic.Bool // account.Waiting; written under mu

	mu      sync.Mutex
	account ledger.Account
	session *session      // the one that is ACTIVE; nil between two
	first   *stage        // the oldest stage; nil if there is none
	turn    *stage        // the stage that is sent next, or was sent last; nil with first
	stage   *stage        // the newest, which Set appends to; nil with first
	bytes   int           // of all stages
	sending bool          // run is sending
	idle    chan struct{} // closed when run stops sending; nil while no goroutine waits
	room    chan struct{} // closed when there may be room; nil while no goroutine waits
	asleep  bool          // run waits on ready
	dropped []uint64      // numbers of staged updates that must not be sent
	uuids   uuidMaker
	closed  bool
}

// stage is a pooled chunk with KVSETs in wire form, one after the other. Their numbers are
// consecutive. At a server of this package they are in the sequence fields.
type stage struct {
	next     *stage
	chunk    *buf.Chunk
	bytes    []byte
	messages int
	first    uint64 // number of the first one
	numbered bool   // the sequence fields of unsent updates have their numbers; otherwise 0
	stale    bool   // unsent updates have numbers, and UUIDs, that are too high
	sent     mark   // where sending continues
}

// last returns the number of the last update.
func (s *stage) last() uint64 { return s.first + uint64(s.messages) - 1 }

// seek returns the position of the update with a number, or of the end.
func (s *stage) seek(n uint64) (at mark) {
	for at.bytes < len(s.bytes) && s.first+uint64(at.messages) < n {
		at.bytes += kvmsg.Record(s.bytes[at.bytes:]).Size()
		at.messages++
	}
	return at
}

// mark is a position between two updates of a stage.
type mark struct{ bytes, messages int }

// stageSize is the size of a stage in bytes, unless one update is larger. A client with
// a small SendQueue has smaller stages.
const stageSize = buf.Large

// lendStage is the size from which a part of a stage is lent to the sockets instead of
// copied: a queue must not keep many times the memory that it counts.
const lendStage = stageSize / 4

// ended is a context that has ended. A Send with it succeeds only if it need not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (w *writer) init(c *Client) {
	w.client = c
	w.ready = make(chan struct{}, 1)
	w.size = min(stageSize, max(c.opts.SendQueue/4, buf.Small))
}

// begin lets updates go to a session's server, until end. After close it has no effect.
func (w *writer) begin(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return // close bounds its wait for run only for the session that it found
	}
	var reply *ledger.Reply
	if s.ours { // others do not count
		reply = s.applied.Load()
	}
	w.account.Begin(s.reportsRefusals && s.ours)
	w.resume(w.account.Meet(reply, s.stream.sequence()))
	if reply == nil || reply.Runs == nil {
		s.echoes = &echoes{writer: w, uuids: uuidMaker{uuidSecret: w.uuids.uuidSecret}}
	}
	w.session = s
	w.awaited.Store(false)
	w.reclaim()
	w.vacate()
	w.rouse()
}

// resume moves the position from which updates are sent to number next. mu must be held.
func (w *writer) resume(next uint64) {
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
	w.account.Lose(min(next-1, w.account.Sent()), ErrUncertain)
}

// end makes updates wait for the next session. Updates that were sent and have not come
// back are kept, or become uncertain.
func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != nil && w.session.uplink != nil {
		w.session.uplink.give() // so that run does not go on sending for long
	}
	w.session = nil
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

// open opens the sockets of the current session, and starts run. mu must be held, and
// there must be a session.
func (w *writer) open() error {
	s := w.session
	if err := s.openUplink(); err != nil {
		return err
	}
	if err := s.uplink.mirror(); err != nil {
		s.uplink.close()
		s.uplink = nil
		return err
	}
	w.client.writing.Store(true)
	if w.ended == nil {
		w.ended = make(chan struct{})
		go w.run()
	}
	w.rouse()
	return nil
}

// fail discards all stages, because the server does not accept this client's updates.
// Updates that were sent in an earlier session are uncertain. The next Set tries again.
func (w *writer) fail(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client.writing.Store(false)
	w.account.Fail(reason)
	w.clear()
	w.vacate()
}

// clear frees all stages. mu must be held.
func (w *writer) clear() {
	for w.first != nil {
		w.free()
	}
	w.dropped = nil
}

// free frees the first stage. mu must be held.
func (w *writer) free() {
	s := w.first
	w.first = s.next
	if w.turn == s {
		w.turn = s.next
	}
	if w.stage == s {
		w.stage = nil
	}
	w.bytes -= len(s.bytes)
	s.chunk.Release()
	*s = stage{}
	stages.Put(s)
}

// giveUp ends a wait. An update that was not sent yet is never sent.
func (w *writer) giveUp(wait *ledger.Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Forget(wait, nil)
	if n := wait.Number(); n > w.account.Sent() {
		w.dropped = append(w.dropped, n)
	}
}

// forget ends a wait for all updates, or for those of a batch.
func (w *writer) forget(wait *ledger.Wait, all *ledger.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Forget(wait, all)
}

// finish ends all waits, present and future: the client is closed.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Close(ErrClosed)
}

// close sends the stages as far as possible within a short time, and ends run.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.vacate()
	w.rouse()
	done, s := w.ended, w.session
	w.mu.Unlock()
	if done == nil {
		return
	}
	defer func() {
		w.mu.Lock()
		w.clear()
		w.mu.Unlock()
	}()
	if s != nil && s.uplink != nil {
		s.uplink.leaving.Store(true)
		timer := time.AfterFunc(closeLinger, s.uplink.give)
		defer timer.Stop()
	}
	<-done
	if s != nil && s.uplink != nil {
		s.uplink.flush()
	}
}

// rouse wakes run if it sleeps. mu must be held.
func (w *writer) rouse() {
	if w.asleep {
		w.asleep = false
		wake.Signal(w.ready)
	}
}

// vacate wakes the goroutines that wait for room. mu must be held.
func (w *writer) vacate() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// update stages one KVSET. wait is the wait of a SetSync, or nil.
func (c *Client) update(ctx context.Context, key string, value []byte, opts []SetOption, wait *ledger.Wait) error {
	if err := kvmsg.ValidKey(bytesOf(key)); err != nil {
		return err
	}
	if c.maxValue > 0 && len(value) > c.maxValue {
		return kvmsg.ErrValueTooLarge
	}
	if len(opts) > 0 || c.dialect.Three {
		return c.updateWith(ctx, key, value, opts, wait)
	}
	w := &c.writer
	w.mu.Lock()
	if err := c.enqueue(ctx, bytesOf(key), value, nil, wait); err != nil {
		return err
	}
	w.rouse()
	w.mu.Unlock()
	return nil
}

// updateWith is update, after its checks, for an update with properties, or for a dialect
// that does not carry all updates. Apart from update, since the memory for the properties
// takes time to clear.
func (c *Client) updateWith(ctx context.Context, key string, value []byte, opts []SetOption, wait *ledger.Wait) error {
	var space [128]byte // on the stack
	props, err := appendOptions(space[:0], opts)
	if err != nil {
		return err
	}
	if err := c.dialect.Carries(value, props); err != nil {
		return err
	}
	w := &c.writer
	w.mu.Lock()
	if err := c.enqueue(ctx, bytesOf(key), value, props, wait); err != nil {
		return err
	}
	w.rouse()
	w.mu.Unlock()
	return nil
}

// enqueue stages one KVSET that was checked. It may use the capacity of props. It is
// called with writer.mu held, and returns with it held unless it returns an error. The
// caller wakes run.
func (c *Client) enqueue(ctx context.Context, key, value, props []byte, wait *ledger.Wait) error {
	foreign := !c.subtrees.Contains(key)
	given := len(props)
	w := &c.writer
	for {
		switch {
		case w.closed:
			w.mu.Unlock()
			return ErrClosed
		case w.session == nil:
			w.mu.Unlock()
			if err := c.WaitActive(ctx); err != nil {
				return err
			}
			w.mu.Lock()
			continue
		}
		if err := c.checkSize(len(value), w.session.maxValue); err != nil {
			w.mu.Unlock()
			return err
		}
		if w.session.uplink == nil {
			if err := w.open(); err != nil {
				w.mu.Unlock()
				return err
			}
		}
		props = props[:given]
		if !w.session.ours && len(value) > 0 {
			props = appendNoTTL(props)
		}
		size := kvmsg.RecordSize(len(key), kvmsg.UUIDSize, len(props), len(value))
		if !w.hasRoom(size) {
			if err := w.waitRoom(ctx); err != nil {
				return err
			}
			continue
		}
		number := w.account.Stage(foreign, wait)
		if number == 0 {
			w.mu.Unlock()
			return ErrClosed
		}
		w.append(size, number, key, props, value)
		return nil
	}
}

// checkSize returns an error if a server does not accept a value of the given size.
// limit is the server's limit, or 0 if unknown.
func (c *Client) checkSize(size, limit int) error {
	switch {
	case limit > 0 && size > limit:
		return errOverServerLimit(limit)
	case limit == 0 && size > c.opts.MaxValueSize:
		return kvmsg.ErrValueTooLarge
	}
	return nil
}

// waitRoom waits until there may be room. It is called with mu held, and returns with
// mu held unless it returns an error.
func (w *writer) waitRoom(ctx context.Context) error {
	if w.room == nil {
		w.room = make(chan struct{})
	}
	room := w.room
	w.mu.Unlock()
	select {
	case <-room:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	return nil
}

// hasRoom reports whether there is room for size more bytes. mu must be held.
func (w *writer) hasRoom(size int) bool {
	s := w.stage
	switch {
	case s == nil:
		return true
	case w.account.Keeps() && w.bytes+size > w.client.opts.SendQueue:
		return false
	case len(s.bytes)+size <= cap(s.bytes):
		return true
	}
	w.advance()
	return w.turn == s // otherwise a full stage waits already
}

// advance moves turn past the stages that were sent. mu must be held.
func (w *writer) advance() {
	for w.turn != nil && w.turn.next != nil && w.turn.sent.bytes == len(w.turn.bytes) {
		w.turn = w.turn.next
	}
}

// append stages one KVSET, for which there is room. mu must be held.
func (w *writer) append(size int, number uint64, key, props, value []byte) {
	s := w.stage
	if s == nil || len(s.bytes)+size > cap(s.bytes) {
		s = w.add(size, number)
	}
	sequence := int64(0)
	if s.numbered {
		sequence = int64(number)
	}
	high, low := w.uuids.code(number)
	s.bytes = kvmsg.AppendUpdate(s.bytes, key, sequence, high, low, props, value)
	s.messages++
	w.bytes += size
}

var stages = sync.Pool{New: func() any { return new(stage) }}

// add appends a new stage for at least size bytes, whose first update has a number. mu
// must be held.
func (w *writer) add(size int, number uint64) *stage {
	s := stages.Get().(*stage)
	s.chunk = buf.Get(max(size, w.size))
	s.bytes = s.chunk.Data()[:0]
	s.first, s.numbered = number, w.session != nil && w.session.ours
	if w.stage != nil {
		w.stage.next = s
	} else {
		w.first, w.turn = s, s
	}
	w.stage = s
	return s
}

// cut removes dropped updates from a stage, except those that were sent once. Those behind
// them get lower numbers. mu must be held.
func (w *writer) cut(s *stage) {
	if len(w.dropped) == 0 {
		return
	}
	sent, last := w.account.Sent(), s.last()
	at := s.seek(max(sent+1, s.first+uint64(s.sent.messages)))
	kept := s.bytes[:at.bytes]
	var gone []uint64
	n := s.first + uint64(at.messages)
	for rest := kvmsg.Record(s.bytes[at.bytes:]); len(rest) > 0; n++ {
		r := rest[:rest.Size()]
		rest = rest[len(r):]
		if slices.Contains(w.dropped, n) {
			gone = append(gone, n)
			continue
		}
		kept = append(kept, r...)
	}
	w.bytes -= len(s.bytes) - len(kept)
	s.bytes, s.messages = kept, s.messages-len(gone)
	for _, n := range slices.Backward(gone) {
		w.account.Remove(n)
	}
	w.dropped = slices.DeleteFunc(w.dropped, func(n uint64) bool { return n <= last })
	for i := range w.dropped {
		w.dropped[i] -= uint64(len(gone))
	}
	if len(gone) > 0 {
		s.stale = true
		for s = s.next; s != nil; s = s.next {
			s.first, s.stale = s.first-uint64(len(gone)), true
		}
	}
}

// number brings the sequence fields of the unsent updates of a stage, and their UUIDs, into
// line with their numbers and with the server: one of another implementation gets none.
// mu must be held.
func (w *writer) number(s *stage, ours bool) {
	if s.numbered == ours && !s.stale {
		return
	}
	for at := s.sent; at.bytes < len(s.bytes); at.messages++ {
		r := kvmsg.Record(s.bytes[at.bytes:])
		n := s.first + uint64(at.messages)
		if n > w.account.Sent() {
			high, low := w.uuids.code(n)
			binary.BigEndian.PutUint64(r.UUID(), high)
			binary.BigEndian.PutUint64(r.UUID()[8:], low)
		}
		if !ours {
			n = 0
		}
		r.SetSeq(int64(n))
		at.bytes += r.Size()
	}
	s.numbered, s.stale = ours, false
}

// reclaim frees the stages at the beginning that are no longer needed. mu must be held.
func (w *writer) reclaim() {
	for s := w.first; s != nil && s.sent.bytes == len(s.bytes) && w.account.Done(s.last()); s = w.first {
		w.free()
		w.vacate()
	}
}

// hear handles a reply of the server, or the refusal of an update, during a session.
func (w *writer) hear(s *session, reply *ledger.Reply, uuid []byte, reason Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != s {
		return
	}
	if reply == nil {
		first, _ := w.account.Open()
		w.account.Refuse(uuidNumber(uuid, first), reason)
	} else if w.account.Reply(reply) {
		w.awaited.Store(w.account.Waiting()) // before the sequence is loaded: see seen
		w.account.Seen(w.client.Sequence())
	}
	w.awaited.Store(w.account.Waiting())
	w.reclaim()
}

// seen settles the updates that a server of this package has acknowledged, and that the
// replica now shows.
func (w *writer) seen() {
	if !w.awaited.Load() { // nearly always, while others write
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.account.Seen(w.client.Sequence())
	w.awaited.Store(w.account.Waiting())
	w.reclaim()
}

// run sends the staged updates, until close.
func (w *writer) run() {
	defer close(w.ended)
	for {
		s := w.next()
		if s == nil {
			return
		}
		err := s.uplink.ready()
		if err == nil {
			err = w.send(s.uplink.ctx, s)
		}
		if err == nil {
			continue
		}
		w.mu.Lock()
		closed := w.closed
		w.mu.Unlock()
		if closed {
			return
		}
		s.fail(err) // it is failing already, unless the collector does not subscribe
		<-s.over
	}
}

// unsent reports whether there are staged updates to send. mu must be held.
func (w *writer) unsent() bool {
	w.advance()
	return w.turn != nil && w.turn.sent.bytes < len(w.turn.bytes)
}

// next waits until there are updates to send and a session to send them with. It returns
// nil once the writer is closed and one of the two is missing.
func (w *writer) next() *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if s := w.session; w.unsent() && s != nil && s.uplink != nil {
			return s
		}
		if w.closed {
			return nil
		}
		w.asleep = true
		w.mu.Unlock()
		<-w.ready
		w.mu.Lock()
	}
}

// send sends the next part of a stage to a session's collector, and waits for room
// there until ctx ends. After an error nothing was sent. Only one goroutine at a time
// calls it.
func (w *writer) send(ctx context.Context, s *session) error {
	w.mu.Lock()
	w.advance()
	part := w.turn
	if w.session != s || part == nil {
		w.mu.Unlock()
		return nil // the session has ended, or the stages were discarded
	}
	w.cut(part)
	w.number(part, s.ours)
	bytes, messages, last := part.bytes[part.sent.bytes:], part.messages-part.sent.messages, part.last()
	if messages == 0 {
		w.reclaim()
		w.vacate()
		w.mu.Unlock()
		return nil
	}
	w.sending = true
	w.mu.Unlock()

	err := s.uplink.send(ctx, bytes, messages, part.chunk)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending = false
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
	if err != nil {
		return err
	}
	part.sent.bytes += len(bytes)
	part.sent.messages += messages
	w.account.Send(last)
	w.reclaim()
	w.vacate()
	return nil
}
