package chp

import (
	"context"
	"slices"
	"sync"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// writer sends a client's updates. Set only appends its KVSET, in wire form, to a
// stage, under a mutex that is never held while a goroutine waits. Another goroutine
// takes everything that was appended meanwhile and lends it to the PUB socket, so the
// cost of the socket is paid once for many updates. After a lull Set does that itself;
// see push.
//
// The sockets belong to the session (see [uplink]). If the server reports how far it
// has applied a client's updates (see [keyApplied]), updates that were sent are kept
// until they come back. If they have not when the session ends, and the next session's
// server has the same map, the updates that it has applied are settled, and sending
// continues after them: the rest is sent again, the same bytes in the same order,
// before anything new. With another map, or a server that does not report, they are
// uncertain and never sent again.
//
// Updates that were not sent when a session ends always go to the server of the next
// one.
//
// The stages are a list. Settled ones at the beginning are freed; then come those that
// were sent, then those that were not; updates are appended to the last one. One stage
// can be all of that at once. A repetition begins by moving back the position from
// which updates are sent.
type writer struct {
	client *Client
	ready  chan struct{} // wakes run, capacity 1
	ended  chan struct{} // closed when run has ended; nil before it runs
	size   int           // of a stage: bytes

	mu      sync.Mutex
	session *session      // the one that is ACTIVE; nil between two
	first   *stage        // the oldest stage; nil if there is none
	turn    *stage        // the stage that is sent next, or was sent last; nil with first
	stage   *stage        // the newest, which Set appends to; nil with first
	bytes   int           // of all stages
	sending bool          // run is sending
	idle    chan struct{} // closed when run stops sending; nil while no goroutine waits
	room    chan struct{} // closed when there may be room; nil while no goroutine waits
	asleep  bool          // run waits on ready, and no caller sends in its place
	lull    lull          // between calls of push with run asleep
	sent    uint64        // number of the last counted update that was sent
	dropped []uint64      // numbers of staged updates that must not be sent
	other   uint64        // number of the last update that is not counted
	uuids   uuidMaker
	closed  bool

	// For servers that report a client's progress.
	keeping bool                   // sent updates are kept until they are settled
	mapID   [ledger.MapIDSize]byte // of the present session's server, or the last one's
	order   uint64                 // order number of the update that was sent last
	done    uint64                 // the server has accepted all order numbers up to this one
	since   int64                  // a sequence of the map below those of all kept updates
}

// stage is a pooled chunk with KVSETs in wire form, one after the other. The order
// number of each follows from its place in the stage, and is in its sequence field.
type stage struct {
	next     *stage
	chunk    *buf.Chunk
	bytes    []byte
	messages int
	order    uint64 // order number of the first one
	numbered bool   // unsent updates have their order numbers; otherwise 0
	stale    bool   // the order numbers of unsent updates are not consecutive
	opening  uint64 // number of the first counted update, or 0
	last     uint64 // number of the last counted update, or 0
	loose    bool   // there are updates that are not counted
	trailing bool   // some of them follow the last counted one
	sent     mark   // where sending continues
	given    mark   // everything before was sent at least once
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
	w.meet(s)
	w.session = s
	w.reclaim()
	w.vacate()
	w.rouse()
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
	if !w.keeping {
		w.client.echoes.end(w.sent)
	}
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
	w.client.echoes.end(w.sent)
	w.sent = w.client.echoes.fail(reason)
	w.clear()
	w.vacate()
}

// clear frees all stages. mu must be held.
func (w *writer) clear() {
	for w.first != nil {
		w.passBy(w.first)
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

// drop prevents an update whose SetSync has given up from being sent, if it was not
// sent yet.
func (w *writer) drop(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.sent {
		w.dropped = append(w.dropped, n)
	}
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
		signal(w.ready)
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
func (c *Client) update(ctx context.Context, key string, value []byte, opts []SetOption, wait *echoWait) error {
	if err := validKey(key); err != nil {
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
	if w.asleep {
		w.push()
	} else {
		w.mu.Unlock() // run sends it
	}
	return nil
}

// updateWith is update, after its checks, for an update with properties, or for a dialect
// that does not carry all updates. Apart from update, since the memory for the properties
// takes time to clear.
func (c *Client) updateWith(ctx context.Context, key string, value []byte, opts []SetOption, wait *echoWait) error {
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
	w.push()
	return nil
}

// enqueue stages one KVSET that was checked. It may use the capacity of props. It is
// called with writer.mu held, and returns with it held unless it returns an error. The
// caller wakes run.
func (c *Client) enqueue(ctx context.Context, key, value, props []byte, wait *echoWait) error {
	counted := c.subtrees.contains(key)
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
		var number uint64
		if !counted {
			w.other++
			number = uncounted | w.other
		} else if number = c.echoes.number(wait); number == 0 {
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
	case w.keeping && w.bytes+size > w.client.opts.SendQueue:
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
		s = w.add(size)
	}
	order := int64(0)
	if s.numbered {
		order = int64(s.order + uint64(s.messages))
	}
	high, low := w.uuids.code(number, key, value)
	s.bytes = kvmsg.AppendUpdate(s.bytes, key, order, high, low, props, value)
	s.messages++
	w.bytes += size
	if number >= uncounted {
		s.loose, s.trailing = true, true
		return
	}
	s.last, s.trailing = number, false
	if s.opening == 0 {
		s.opening = number
	}
}

var stages = sync.Pool{New: func() any { return new(stage) }}

// add appends a new stage for at least size bytes. mu must be held.
func (w *writer) add(size int) *stage {
	s := stages.Get().(*stage)
	s.chunk = buf.Get(max(size, w.size))
	s.bytes = s.chunk.Data()[:0]
	s.numbered = w.session != nil && w.session.ours
	if last := w.stage; last != nil {
		s.order = last.order + uint64(last.messages)
		last.next = s
	} else {
		s.order = w.order + 1
		w.first, w.turn = s, s
	}
	w.stage = s
	return s
}

// cut removes dropped updates from a stage, except those that were sent once. mu must
// be held.
func (w *writer) cut(s *stage) {
	if len(w.dropped) == 0 {
		return
	}
	at := max(s.sent.bytes, s.given.bytes)
	kept := s.bytes[:at]
	for rest := kvmsg.Record(s.bytes[at:]); len(rest) > 0; {
		r := rest[:rest.Size()]
		rest = rest[len(r):]
		if n := uuidNumber(r.UUID(), w.sent+1); slices.Contains(w.dropped, n) {
			w.client.echoes.drop(n)
			s.messages--
			w.bytes -= len(r)
			s.stale, s.trailing = true, s.loose
			if s.opening == n {
				s.opening = 0
			}
			continue
		}
		kept = append(kept, r...)
	}
	s.bytes = kept
	w.dropped = slices.DeleteFunc(w.dropped, func(n uint64) bool { return n <= s.last })
}

// number gives the unsent updates of a stage consecutive order numbers, or none if the
// server is of another implementation. mu must be held.
func (w *writer) number(s *stage, ours bool) {
	first := w.order + 1 - uint64(s.sent.messages)
	if s.numbered == ours && !(ours && (s.stale || s.order != first)) {
		return
	}
	s.numbered, s.stale = ours, false
	if ours {
		s.order = first
	}
	at := s.sent
	for at.bytes < len(s.bytes) {
		r := kvmsg.Record(s.bytes[at.bytes:])
		if ours {
			r.SetSeq(int64(s.order + uint64(at.messages)))
		} else {
			r.SetSeq(0)
		}
		at.bytes += r.Size()
		at.messages++
	}
}

// reclaim frees the stages at the beginning that are no longer needed. mu must be held.
func (w *writer) reclaim() {
	if w.first == nil {
		return
	}
	first, _ := w.client.echoes.onTheWay()
	for s := w.first; s != nil && s.sent.bytes == len(s.bytes); s = w.first {
		if w.keeping && (s.last >= first || s.trailing && !w.passed(s, first)) {
			return
		}
		w.free()
		w.vacate()
	}
}

// settled must be called after updates have been settled.
func (w *writer) settled() {
	w.mu.Lock()
	w.reclaim()
	w.mu.Unlock()
}

// passed reports whether the server is known to have received the last update of a
// stage, which is not counted: the server has reported it, or a later update came back.
// All counted updates below first are settled. mu must be held.
func (w *writer) passed(s *stage, first uint64) bool {
	if s.order+uint64(s.messages) <= w.done+1 {
		return true
	}
	for s = s.next; s != nil; s = s.next {
		if s.opening > 0 {
			return s.opening < first
		}
	}
	return false
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

// push has a new update sent: by run, or after a lull by the caller itself, because run
// takes longer to wake than the update to send. While updates come one after the other,
// run sends many of them at a time. mu must be held, and is released.
func (w *writer) push() {
	defer w.mu.Unlock()
	if !w.asleep {
		return
	}
	s := w.session
	if !w.lull.over() || w.closed || s == nil || !s.ours || !s.uplink.known.Load() || len(w.turn.bytes)-w.turn.sent.bytes > promptBytes {
		w.rouse()
		return
	}
	w.asleep = false
	w.mu.Unlock()
	err := s.uplink.ready()
	if err == nil {
		err = w.send(ended, s)
	}
	w.mu.Lock()
	w.asleep = true
	if err != nil || w.closed || w.unsent() {
		w.rouse() // run sends the updates staged since, and handles the error
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
	bytes, messages, last := part.bytes[part.sent.bytes:], part.messages-part.sent.messages, part.last
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
	if part.sent.bytes > part.given.bytes {
		part.given = part.sent
	}
	w.sent = max(w.sent, last)
	if s.ours {
		w.order += uint64(messages)
	}
	w.reclaim()
	w.vacate()
	return nil
}
