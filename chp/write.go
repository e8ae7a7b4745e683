package chp

import (
	"context"
	"errors"
	"sync"

	"clustermap/sockets"
)

// Set sends a new value of a key to the server, as a KVSET (RFC 12). It waits
// until the client is ACTIVE, until the server's collector has subscribed, and
// until there is room in the queue to it; when the context ends first, nothing
// is sent.
//
// It does not wait for the server's KVPUB, which is what changes the replica:
// see SetSync and Flush. An update that was sent can be lost with the
// connection.
//
// The key has 1 to 255 octets without NUL, is not KTHXBAI and does not begin
// with HUGZ. The value has at least one octet (ErrEmptyValue otherwise) and at
// most MaxValueSize. What breaks these rules, or those of the options, is
// refused with a *MessageError. Set keeps neither key nor value, and allocates
// nothing unless it has to wait.
func (c *Client) Set(ctx context.Context, key string, value []byte, opts ...SetOption) error {
	if len(value) == 0 {
		return ErrEmptyValue
	}
	return c.update(ctx, key, value, opts, nil)
}

// SetSync is Set, and waits until the update has come back as the server's
// KVPUB and has been applied: Get then finds it, or what came after it. It
// returns the KVPUB's sequence. If the connection to the server breaks before,
// or the server passes over the update, it returns ErrUncertain. A key outside
// of the client's subtrees cannot come back: ErrOutsideSubtrees, and nothing is
// sent. When the context ends while it waits, the update has been sent.
func (c *Client) SetSync(ctx context.Context, key string, value []byte, opts ...SetOption) (seq int64, err error) {
	if len(value) == 0 {
		return 0, ErrEmptyValue
	}
	return c.updateSync(ctx, key, value, opts)
}

// Delete sends the deletion of a key to the server: an empty KVSET. It waits as
// Set does.
func (c *Client) Delete(ctx context.Context, key string) error {
	return c.update(ctx, key, nil, nil, nil)
}

// DeleteSync is Delete, and waits as SetSync does.
func (c *Client) DeleteSync(ctx context.Context, key string) (seq int64, err error) {
	return c.updateSync(ctx, key, nil, nil)
}

// Flush waits until all of the client's updates that were sent before, to keys
// of its subtrees, have come back and have been applied. It returns
// ErrUncertain if some did not and never will, because the connection broke or
// the server passed over them; it reports each of them once.
func (c *Client) Flush(ctx context.Context) error {
	w, err := c.echoes.flush()
	if w == nil {
		return err
	}
	_, err = c.await(ctx, w)
	return err
}

func (c *Client) updateSync(ctx context.Context, key string, value []byte, opts []SetOption) (int64, error) {
	if !c.subtrees.holds(octetsOf(key)) {
		return 0, ErrOutsideSubtrees
	}
	w := &echoWait{sync: true, done: make(chan struct{})}
	if err := c.update(ctx, key, value, opts, w); err != nil {
		return 0, err
	}
	return c.await(ctx, w)
}

// await waits for the end of w or of the context.
func (c *Client) await(ctx context.Context, w *echoWait) (int64, error) {
	select {
	case <-w.done:
		return w.seq, w.err
	case <-ctx.Done():
		c.echoes.forget(w)
		return 0, ctx.Err()
	}
}

// writer sends a client's updates. Each server has a PUB socket of its own, so
// that an update waits for the server that the client follows and for no other:
// a backup that hangs, or has subscribed earlier, changes nothing. The other
// servers get the update as well if they have room, as Clone servers expect of
// a client.
//
// The sockets are made when the first update is sent: a client that only reads
// does not connect to the collectors.
type writer struct {
	client *Client
	turn   turn // taken while an update is being sent

	// Guarded by turn.
	id    []byte // scratch
	props []byte // scratch
	other uint64 // number of the last uncounted update

	// Written under turn and mu, read under either.
	pubs []*sockets.Pub

	mu     sync.Mutex
	closed bool
}

// zeroSequence is frame 1 of a KVSET, which has no significance.
var zeroSequence [8]byte

// ended is a context that is over. A Send with it goes through if it need not
// wait, and gives up otherwise.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (w *writer) init(c *Client) {
	w.client = c
	w.turn = newTurn()
}

// open makes the sockets. The turn must be held.
func (w *writer) open() error {
	if w.pubs != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	c := w.client
	c.writing.Store(true)
	var pubs []*sockets.Pub
	for _, server := range c.servers {
		p, err := sockets.NewPub(sockets.Options{
			SendHWM:              -1,
			SendHWMOctets:        c.opts.SendQueue,
			FullPolicy:           sockets.Block,
			WaitSubscriber:       true,
			Linger:               closeLinger,
			ReconnectIntervalMax: backOffMost,
			HandshakeTimeout:     c.opts.SyncTimeout,
			MaxMessageSize:       int64(c.opts.MaxValueSize) + maxOverhead,
			Metadata:             map[string]string{propertyCHP: announcement},
			Monitor:              c.watchCollector,
		})
		if err != nil {
			closePubs(pubs)
			return err
		}
		pubs = append(pubs, p)
		if err := p.Connect(server.collector); err != nil {
			closePubs(pubs)
			return err
		}
	}
	w.pubs = pubs
	return nil
}

// watchCollector logs what keeps updates from being sent: above all a server
// whose collector is no SUB socket, as those of the guide's first models.
func (c *Client) watchCollector(e sockets.Event) {
	if e.Kind == sockets.HandshakeFailed {
		c.log.Warn("collector refused", "collector", e.Endpoint, "error", e.Err)
	}
}

func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	pubs := w.pubs
	w.mu.Unlock()
	closePubs(pubs)
}

func closePubs(pubs []*sockets.Pub) {
	var closing sync.WaitGroup
	for _, p := range pubs {
		closing.Go(func() { _ = p.Close() }) // closing a socket does not fail
	}
	closing.Wait()
}

// validKey returns a *MessageError for a key that servers refuse.
func validKey(key string) error {
	switch {
	case key == "":
		return errKeyEmpty
	case len(key) > maxKey:
		return errKeyLong
	}
	_, err := checkKey(octetsOf(key), fromClient)
	return err
}

// update sends one KVSET; w is the wait of a SetSync.
func (c *Client) update(ctx context.Context, key string, value []byte, opts []SetOption, w *echoWait) error {
	if err := validKey(key); err != nil {
		return err
	}
	if len(value) > c.opts.MaxValueSize {
		return errValueTooLarge
	}
	if err := c.writer.turn.take(ctx, c.ctx.Done()); err != nil {
		return err
	}
	err := c.writer.send(ctx, key, value, opts, w)
	c.writer.turn.give()
	return err
}

// send sends one KVSET to the server of the present epoch, or waits for the
// next epoch. The turn must be held.
func (w *writer) send(ctx context.Context, key string, value []byte, opts []SetOption, wait *echoWait) error {
	c := w.client
	var err error
	if w.props, err = appendOptions(w.props[:0], opts); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	counted := c.subtrees.holds(octetsOf(key))
	for {
		t, ok := c.echoes.reserve(counted, wait)
		if !ok {
			if err := c.status.waitActive(ctx); err != nil {
				return err
			}
			continue
		}
		number := t.n
		if !counted {
			w.other++
			number = uncounted | w.other
		}
		w.id = c.uuids.append(w.id[:0], number)
		frames := [5][]byte{octetsOf(key), zeroSequence[:], w.id, w.props, value}
		err := w.pubs[t.server].Send(ended, frames[:]...)
		if errors.Is(err, context.Canceled) {
			err = w.wait(ctx, t, frames[:])
		}
		if err != nil {
			c.echoes.unsent()
			switch {
			case errors.Is(err, sockets.ErrClosed):
				return ErrClosed
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, context.Canceled):
				continue // the epoch ended while we waited
			}
			return err
		}
		if counted {
			c.echoes.sentOff(t)
		}
		for i, p := range w.pubs {
			if i != t.server {
				_ = p.Send(ended, frames[:]...) // as far as it has room
			}
		}
		return nil
	}
}

// wait sends a message when there is room, unless the ticket's epoch ends
// before: then the error is context.Canceled.
func (w *writer) wait(ctx context.Context, t ticket, frames [][]byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.client.echoes.hold(t, cancel)
	defer w.client.echoes.release()
	return w.pubs[t.server].Send(ctx, frames...)
}
