package chp

import (
	"context"
	"errors"
	"sync"
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/sockets"
)

// writer sends a client's updates. A Set only appends its KVSET, in wire form,
// to the stage, under a mutex that is never held while anybody waits; a
// goroutine takes the stage as it is and lends it to the PUB socket. So what a
// socket costs is paid once for all updates that have come together meanwhile.
//
// Each server has a PUB socket of its own, so that an update waits for the
// server that the client follows and for no other: a backup that hangs, or has
// subscribed earlier, changes nothing. The other servers get the update as well
// if they have room, as Clone servers expect of a client.
//
// The sockets are made when the first update is sent: a client that only reads
// does not connect to the collectors.
type writer struct {
	client *Client
	ready  chan struct{} // wakes run, capacity 1
	ended  chan struct{} // closed when run has ended; nil before it runs

	mu     sync.Mutex
	stage  *stage
	room   chan struct{} // closed when the stage has been taken; nil while nobody waits
	asleep bool          // run waits on ready
	other  uint64        // number of the last update that is not counted
	closed bool
	pubs   []*sockets.Pub
	epoch  epochOf
}

// epochOf is the server that updates go to, while there is one.
type epochOf struct {
	server int             // index of the server
	ctx    context.Context // ends with the epoch; nil between two
	cancel context.CancelFunc
}

// stage is KVSETs in wire form, one behind the other, in a pooled chunk.
type stage struct {
	chunk    *buf.Chunk
	octets   []byte
	messages int
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

// begin lets updates go to a server, until end.
func (w *writer) begin(server int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch.server = server
	w.epoch.ctx, w.epoch.cancel = context.WithCancel(context.Background())
	w.rouse()
}

// end makes updates wait for the next epoch.
func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoch.ctx != nil {
		w.epoch.cancel()
		w.epoch.ctx = nil
	}
}

// open makes the sockets and starts run. mu must be held.
func (w *writer) open() error {
	c := w.client
	var pubs []*sockets.Pub
	for _, server := range c.servers {
		p, err := sockets.NewPub(sockets.Options{
			SendHWM:              -1,
			SendHWMOctets:        c.opts.SendQueue,
			FullPolicy:           sockets.Block,
			Linger:               closeLinger,
			ReconnectIntervalMax: backOffMost,
			Security:             c.opts.Security,
			HandshakeTimeout:     c.opts.SyncTimeout,
			MaxMessageSize:       int64(c.opts.MaxValueSize) + maxOverhead,
			Metadata:             map[string]string{propertyCHP: announcement},
			Monitor:              c.watchCollector,
		})
		if err == nil {
			pubs = append(pubs, p)
			err = p.Connect(server.collector)
		}
		if err != nil {
			closePubs(pubs)
			return err
		}
	}
	w.pubs = pubs
	w.ended = make(chan struct{})
	c.writing.Store(true)
	go w.run()
	return nil
}

// watchCollector logs what keeps updates from being sent: above all a server
// whose collector is no SUB socket, as those of the guide's first models.
func (c *Client) watchCollector(e sockets.Event) {
	if e.Kind == sockets.HandshakeFailed {
		c.log.Warn("collector refused", "collector", e.Endpoint, "error", e.Err)
	}
}

// close sends what is staged, as far as it can without waiting long, and ends.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	if w.epoch.ctx != nil {
		w.epoch.cancel()
	}
	w.vacate()
	w.rouse()
	done := w.ended
	w.mu.Unlock()
	if done != nil {
		<-done
	}
	closePubs(w.pubs)
}

func closePubs(pubs []*sockets.Pub) {
	var closing sync.WaitGroup
	for _, p := range pubs {
		closing.Go(func() { _ = p.Close() }) // closing a socket does not fail
	}
	closing.Wait()
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
	if len(value) > c.opts.MaxValueSize {
		return errValueTooLarge
	}
	var space [128]byte // on the stack
	props, err := appendOptions(space[:0], opts)
	if err != nil {
		return err
	}
	counted := c.subtrees.holds(octetsOf(key))
	size := recordSize(len(key), uuidSize, len(props), len(value))
	w := &c.writer
	w.mu.Lock()
	for {
		if w.closed {
			w.mu.Unlock()
			return ErrClosed
		}
		if w.pubs == nil {
			if err := w.open(); err != nil {
				w.mu.Unlock()
				return err
			}
		}
		var number uint64
		switch {
		case w.epoch.ctx == nil:
			w.mu.Unlock()
			if err := c.status.waitActive(ctx); err != nil {
				return err
			}
			w.mu.Lock()
			continue
		case !w.stage.holds(size):
			if err := w.waitRoom(ctx); err != nil {
				return err
			}
			continue
		case counted:
			if number = c.echoes.number(wait); number == 0 {
				// The epoch has just ended; the state says so in a moment.
				w.mu.Unlock()
				if err := c.status.waitActive(ctx); err != nil {
					return err
				}
				w.mu.Lock()
				continue
			}
		default:
			w.other++
			number = uncounted | w.other
		}
		w.append(size, number, key, props, value)
		w.mu.Unlock()
		return nil
	}
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
	var id [uuidSize]byte
	s.octets = appendRecord(s.octets, octetsOf(key), 0, w.client.uuids.append(id[:0], number), props, value)
	s.messages++
}

var stages = sync.Pool{New: func() any { return new(stage) }}

// newStage returns an empty stage for at least size octets.
func newStage(size int) *stage {
	s := stages.Get().(*stage)
	s.chunk = buf.Get(max(size, stageSize))
	s.octets, s.messages = s.chunk.Data()[:0], 0
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

// run sends what is staged, until close.
func (w *writer) run() {
	defer close(w.ended)
	for {
		w.mu.Lock()
		for w.stage == nil && !w.closed {
			w.asleep = true
			w.mu.Unlock()
			<-w.ready
			w.mu.Lock()
		}
		s := w.stage
		w.stage = nil
		w.vacate()
		w.mu.Unlock()
		if s == nil {
			return // closed
		}
		w.send(s)
		s.free()
	}
}

// send hands a stage to the server of the present epoch. If that ends before
// the server has taken it, it goes to the server of the next one: its updates
// may be uncertain by then, but whoever sent them was not told that they are
// lost.
func (w *writer) send(s *stage) {
	for {
		w.mu.Lock()
		e, closed := w.epoch, w.closed
		if e.ctx == nil && !closed {
			w.asleep = true
			w.mu.Unlock()
			<-w.ready
			continue
		}
		w.mu.Unlock()
		ctx := e.ctx
		if closed {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.Background(), closeLinger)
			defer cancel()
		}
		var owner sockets.Owner = s.chunk
		if len(s.octets) < lendStage {
			owner = nil
		}
		p := w.pubs[e.server]
		err := p.WaitSubscribers(ctx, nil, 1)
		if err == nil {
			err = p.SendWire(ctx, s.octets, s.messages, owner)
		}
		if err != nil {
			if closed || !errors.Is(err, context.Canceled) {
				return
			}
			continue
		}
		for i, p := range w.pubs {
			if i != e.server {
				_ = p.SendWire(ended, s.octets, s.messages, owner) // as far as it has room
			}
		}
		return
	}
}
