package chp

import (
	"context"
	"slices"
	"sync"
	"time"
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// writer sends a client's updates. A Set only appends its KVSET, in wire form,
// to the stage, under a mutex that is never held while anybody waits; a
// goroutine takes the stage as it is and lends it to the PUB socket. So what a
// socket costs is paid once for all updates that have come together meanwhile.
//
// The sockets belong to the session (see [uplink]). An update that was handed
// to them ends with the session: it came back, or it is uncertain, and is never
// sent again. What is still staged when a session ends goes to the server of the
// next one.
type writer struct {
	client *Client
	ready  chan struct{} // wakes run, capacity 1
	ended  chan struct{} // closed when run has ended; nil before it runs

	mu      sync.Mutex
	session *session      // the one that is ACTIVE; nil between two
	stage   *stage        // what Set appends to
	held    *stage        // what run has taken and not yet handed to a session
	handing bool          // run is handing held over
	idle    chan struct{} // closed when it has done so; nil while nobody waits
	room    chan struct{} // closed when the stage has been taken; nil while nobody waits
	asleep  bool          // run waits on ready
	handed  uint64        // number of the last counted update that was handed over
	dropped []uint64      // numbers of staged updates that must not be sent any more
	other   uint64        // number of the last update that is not counted
	uuids   uuidMaker
	closed  bool
}

// stage is KVSETs in wire form, one behind the other, in a pooled chunk.
type stage struct {
	chunk    *buf.Chunk
	octets   []byte
	messages int
	last     uint64 // number of the last counted update, 0 if there is none
}

// stageSize is how many octets are staged before Set waits; a larger update is
// staged alone.
const stageSize = buf.Large

// lendStage is the size from which a stage is lent to the sockets instead of
// copied: a queue must not pin many times the octets that it counts.
const lendStage = stageSize / 4

// writeAhead is how many octets ahead of what is appended the stage's memory is
// asked for: some records.
const writeAhead = 512

// ended is a context that is over. A Send with it goes through if it need not
// wait, and gives up otherwise.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (w *writer) init(c *Client) {
	w.client = c
	w.ready = make(chan struct{}, 1)
}

// begin lets updates go to a session's server, until end. After close it does
// nothing.
func (w *writer) begin(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return // close waits for run, and bounds that only for the session that it found
	}
	w.session = s
	w.rouse()
}

// end makes updates wait for the next session. What was handed to this one and
// has not come back becomes uncertain.
func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != nil && w.session.uplink != nil {
		w.session.uplink.give() // so that run does not go on handing over for long
	}
	w.session = nil
	for w.handing {
		if w.idle == nil {
			w.idle = make(chan struct{})
		}
		idle := w.idle
		w.mu.Unlock()
		<-idle
		w.mu.Lock()
	}
	w.client.echoes.end(w.handed)
}

// open makes the sockets of the present session, and starts run. It must be
// called with mu held and a session.
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

// fail gives up all that is staged: the server does not take this client's
// updates. The next Set tries again.
func (w *writer) fail(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client.writing.Store(false)
	for _, s := range []*stage{w.held, w.stage} {
		if s != nil {
			s.free()
		}
	}
	w.held, w.stage, w.dropped = nil, nil, nil
	w.handed = w.client.echoes.fail(reason)
	w.vacate()
}

// drop sees to it that an update whose SetSync has given up is not sent later,
// if it has not been handed over yet.
func (w *writer) drop(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.handed {
		w.dropped = append(w.dropped, n)
	}
}

// close sends what is staged, as far as it can without waiting long, and ends.
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

// vacate tells those who wait for room to look again. mu must be held.
func (w *writer) vacate() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// update sends one KVSET; wait is the wait of a SetSync.
func (c *Client) update(ctx context.Context, key string, value []byte, opts []SetOption, wait *echoWait) error {
	if err := validKey(key); err != nil {
		return err
	}
	if c.maxValue > 0 && len(value) > c.maxValue {
		return kvmsg.ErrValueTooLarge
	}
	var space [128]byte // on the stack
	props, err := appendOptions(space[:0], opts)
	if err != nil {
		return err
	}
	if err := c.dialect.carries(value, props); err != nil {
		return err
	}
	counted := c.subtrees.holds(octetsOf(key))
	given := len(props)
	w := &c.writer
	w.mu.Lock()
	for {
		switch {
		case w.closed:
			w.mu.Unlock()
			return ErrClosed
		case w.session == nil:
			w.mu.Unlock()
			if err := c.waitActive(ctx); err != nil {
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
		if !w.stage.holds(size) {
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
		w.mu.Unlock()
		return nil
	}
}

// checkSize says whether a server with the given limit, 0 if it is not known,
// takes a value of so many bytes.
func (c *Client) checkSize(size, limit int) error {
	switch {
	case limit > 0 && size > limit:
		return errOverServerLimit(limit)
	case limit == 0 && size > c.opts.MaxValueSize:
		return kvmsg.ErrValueTooLarge
	}
	return nil
}

// waitRoom waits until the stage has been taken. It is called with mu held and
// returns with mu held, unless it returns an error.
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

// append stages one KVSET, for which there is room. mu must be held.
func (w *writer) append(size int, number uint64, key string, props, value []byte) {
	s := w.stage
	if s == nil {
		s = newStage(size)
		w.stage = s
		w.rouse()
	}
	// The stage was last read by the core that sent it. Whoever unlocks mu waits
	// for the lines written under it, so they are asked for ahead.
	if ahead := len(s.octets) + writeAhead; ahead < cap(s.octets) {
		prefetchWrite(unsafe.Pointer(&s.octets[:cap(s.octets)][ahead]))
	}
	var id [kvmsg.UUIDSize]byte
	s.octets = kvmsg.AppendRecord(s.octets, octetsOf(key), 0, w.uuids.append(id[:0], number, octetsOf(key), value), props, value)
	s.messages++
	if number < uncounted {
		s.last = number
	}
}

var stages = sync.Pool{New: func() any { return new(stage) }}

// newStage returns an empty stage for at least size octets.
func newStage(size int) *stage {
	s := stages.Get().(*stage)
	s.chunk = buf.Get(max(size, stageSize))
	s.octets, s.messages, s.last = s.chunk.Data()[:0], 0, 0
	return s
}

// holds says whether so many octets more can be staged.
func (s *stage) holds(size int) bool {
	return s == nil || len(s.octets)+size <= cap(s.octets)
}

func (s *stage) free() {
	s.chunk.Release()
	s.chunk, s.octets = nil, nil
	stages.Put(s)
}

// cut removes from a stage the updates that must not be sent any more. mu must be
// held.
func (w *writer) cut(s *stage) {
	if len(w.dropped) == 0 {
		return
	}
	kept := s.octets[:0]
	for rest := kvmsg.Record(s.octets); len(rest) > 0; {
		r := rest[:rest.Size()]
		rest = rest[len(r):]
		if n := uuidNumber(r.UUID(), w.handed+1); slices.Contains(w.dropped, n) {
			w.client.echoes.drop(n)
			s.messages--
			continue
		}
		kept = append(kept, r...)
	}
	s.octets = kept
	w.dropped = slices.DeleteFunc(w.dropped, func(n uint64) bool { return n <= s.last })
}

// run sends what is staged, until close.
func (w *writer) run() {
	defer close(w.ended)
	for {
		s := w.next()
		if s == nil {
			return
		}
		err := s.uplink.ready()
		if err == nil {
			err = w.hand(s)
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

// next waits until there is something to send and a session to send it with. It
// returns nil once the writer is closed and one of the two is missing.
func (w *writer) next() *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if s := w.session; s != nil && s.uplink != nil && (w.held != nil || w.stage != nil) {
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

// hand hands what is staged to a session's collector, for good: it will not be
// sent again, whatever becomes of it. With an error nothing was handed over.
func (w *writer) hand(s *session) error {
	w.mu.Lock()
	if w.session != s {
		w.mu.Unlock()
		return nil
	}
	if w.held == nil {
		w.held, w.stage = w.stage, nil
		w.vacate()
	}
	held := w.held
	if held == nil {
		w.mu.Unlock()
		return nil // given up meanwhile
	}
	w.cut(held)
	w.handing = true
	w.mu.Unlock()

	err := s.uplink.send(held)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.handing = false
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
	if err != nil {
		return err
	}
	w.handed = max(w.handed, held.last)
	held.free()
	w.held = nil
	return nil
}
