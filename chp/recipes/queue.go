package recipes

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermap/chp"
	"clustermap/internal/option"
)

// Options are those of a [Mutex], a [Semaphore], an [Election] and a [Pool].
type Options struct {
	// TTL is the time after which others get the lock of a program that has died or cannot reach the
	// server; it begins anew, behind ServerOptions.ExpiryGrace, when the server has started, taken over or
	// stood still. The default is DefaultTTL, the minimum MinTTL. In a pair it should be several times as
	// long as a failover.
	TTL time.Duration

	// Value is the value of the key, by which people and programs know the holder. The default is the
	// name of the machine and the number of the process.
	Value []byte
}

// queue has the lines of some locks, which one watch reports, and the locks of this process in
// them.
type queue struct {
	source source
	root   string // what all keys begin with
	ttl    time.Duration
	value  []byte
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	synced chan struct{} // closed when the watch has reported a whole state for the first time
	grants chan struct{} // capacity 1; full while somebody asks for a lease

	mu      sync.Mutex
	now     *tenure // of keys that are created; nil if there is none
	whole   bool    // the lines are those of a whole state
	lines   map[string]*line
	tickets map[string]int64 // of keys in the lines: their sequences
	own     map[string]*Lock // by key
	touched []*line          // since settle
	fresh   []*Lock          // of own, those whose keys were seen since settle
	err     error            // why there are no locks any more
	changed chan struct{}    // closed at the next change of a line; nil while nobody waits
}

// newQueue returns the queue for the keys below a name.
func newQueue(c *chp.Client, name string, o Options) (*queue, error) {
	root := strings.TrimSuffix(name, "/") + "/"
	return startQueue(&clientSource{c, root}, root, o)
}

func startQueue(s source, root string, o Options) (*queue, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.TTL < MinTTL {
		return nil, option.New("chp/recipes", "TTL", "is %v; the minimum is %v", o.TTL, MinTTL)
	}
	if len(o.Value) == 0 {
		host, _ := os.Hostname()
		o.Value = fmt.Appendf(nil, "%s:%d", host, os.Getpid())
	}
	w, err := s.watch()
	if err != nil {
		return nil, err
	}
	q := &queue{
		source: s, root: root, ttl: o.TTL, value: slices.Clone(o.Value), synced: make(chan struct{}), grants: make(chan struct{}, 1),
		lines: map[string]*line{}, tickets: map[string]int64{}, own: map[string]*Lock{},
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.tasks.Go(func() { q.follow(w) })
	return q, nil
}

// tenure is the time of one lease, which all keys share that the process has created in it.
type tenure struct {
	lease
	ctx context.Context // ends with it
	end context.CancelFunc
}

// tenure returns the present tenure, or a new one.
func (q *queue) tenure(ctx context.Context) (*tenure, error) {
	select {
	case q.grants <- struct{}{}:
		defer func() { <-q.grants }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	q.mu.Lock()
	t := q.now
	q.mu.Unlock()
	if t != nil && t.Err() == nil {
		return t, nil
	}
	l, err := q.source.grant(ctx, q.ttl)
	if err != nil {
		return nil, err
	}
	t = &tenure{lease: l}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		_ = l.Close() // never fails
		return nil, q.err
	}
	t.ctx, t.end = context.WithCancel(q.ctx)
	q.now = t
	q.tasks.Go(func() { q.hold(t) })
	return t, nil
}

// hold waits until a tenure is over, and ends its locks, before the server can let their keys expire.
func (q *queue) hold(t *tenure) {
	select {
	case <-t.Done():
	case <-q.ctx.Done():
	}
	t.end()
	q.mu.Lock()
	if q.now == t {
		q.now = nil
	}
	for _, l := range q.own {
		if l.with == t {
			l.end(ErrLost)
		}
	}
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	_ = t.Revoke(ctx) // so that others need not wait for its end
}

// follow applies what the watch reports, until the queue or the client is closed.
func (q *queue) follow(w feed) {
	for {
		err := q.apply(w)
		w.Close()
		if errors.Is(err, chp.ErrLagged) {
			q.mu.Lock()
			q.restart()
			q.mu.Unlock()
			if w, err = q.source.watch(); err == nil {
				continue
			}
		}
		if q.ctx.Err() != nil {
			err = ErrClosed
		}
		q.fail(err)
		q.cancel()
		return
	}
}

// apply applies the events of a watch, until an error. What a new snapshot of the client
// changes is in no order, and in one batch; so nobody wins before a batch is applied.
func (q *queue) apply(w feed) error {
	for {
		any := false
		err := w.NextBatch(q.ctx, func(e chp.Event) bool {
			if !any {
				any = true
				q.mu.Lock()
			}
			q.event(&e)
			return true
		})
		if any {
			q.settle()
			q.mu.Unlock()
		}
		if err == nil {
			err = q.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// event applies an event. mu must be held.
func (q *queue) event(e *chp.Event) {
	key := string(e.Key)
	before, found := q.tickets[key]
	switch e.Op {
	case chp.OpSynced:
		q.complete()
	case chp.OpDelete:
		if found {
			q.remove(key, before)
		}
	case chp.OpSet:
		ticket := e.Sequence
		if found && before == ticket { // another watch reports it again
			q.place(key, ticket).seen = true
			return
		}
		if found { // something else has set it
			q.remove(key, before)
		}
		q.tickets[key] = ticket
		own := q.own[key]
		if own != nil && own.placed {
			own.end(ErrLost)
			own = nil
		} else if own != nil {
			own.placed = true
			q.fresh = append(q.fresh, own)
		}
		l := q.line(lineOf(key))
		l.insert(place{ticket, key, slices.Clone(e.Value), own, true})
		q.touch(l)
	}
}

// settle is called when events were applied: it tells those who hold a lock now. mu must be held.
func (q *queue) settle() {
	if !q.whole {
		return
	}
	for _, l := range q.touched {
		l.touched = false
		for i := range min(l.slots, len(l.places)) {
			if p := &l.places[i]; p.own != nil {
				p.own.win(p.ticket)
			}
		}
		if len(l.places) == 0 && l.slots == 0 {
			delete(q.lines, l.name)
		}
	}
	if q.changed != nil && len(q.touched) > 0 {
		close(q.changed)
		q.changed = nil
	}
	q.touched = q.touched[:0]
	for _, own := range q.fresh {
		close(own.seen)
	}
	q.fresh = q.fresh[:0]
	select {
	case <-q.synced:
	default:
		close(q.synced)
	}
}

// touch notes that a line has changed. mu must be held.
func (q *queue) touch(l *line) {
	if !l.touched {
		l.touched = true
		q.touched = append(q.touched, l)
	}
}

// place returns the place of a key. mu must be held.
func (q *queue) place(key string, ticket int64) *place {
	l := q.lines[lineOf(key)]
	i, _ := l.find(ticket)
	return &l.places[i]
}

// line returns the line of a name. mu must be held.
func (q *queue) line(name string) *line {
	l := q.lines[name]
	if l == nil {
		l = &line{name: name}
		q.lines[name] = l
	}
	return l
}

// lineOf returns the name of the line of a key.
func lineOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// remove removes a key from its line. mu must be held.
func (q *queue) remove(key string, ticket int64) {
	delete(q.tickets, key)
	l := q.lines[lineOf(key)]
	i, _ := l.find(ticket)
	if own := l.places[i].own; own != nil {
		own.end(ErrLost)
	}
	l.places = slices.Delete(l.places, i, i+1)
	q.touch(l)
}

// restart prepares for another watch. mu must be held.
func (q *queue) restart() {
	q.whole = false
	for key, ticket := range q.tickets {
		q.place(key, ticket).seen = false
	}
}

// complete is called when a watch has reported a whole state. mu must be held.
func (q *queue) complete() {
	for key, ticket := range q.tickets {
		if !q.place(key, ticket).seen {
			q.remove(key, ticket)
		}
	}
	q.whole = true
}

// fail ends all locks.
func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	for _, l := range q.own {
		l.end(q.err)
	}
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// close gives all locks back, and waits for that, for a second at most.
func (q *queue) close() error {
	q.fail(ErrClosed)
	q.cancel()
	q.tasks.Wait()
	return nil
}

// acquire waits for a lock. With try it does not wait for others.
func (q *queue) acquire(ctx context.Context, name string, slots int, value []byte, try bool) (*Lock, error) {
	if value == nil {
		value = q.value
	}
	if err := q.source.ready(ctx); err != nil {
		return nil, err
	}
	select {
	case <-q.synced:
	case <-q.ctx.Done(): // enter returns why
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		q.mu.Lock()
		q.line(name).slots = slots
		q.mu.Unlock()
		l, err := q.enter(ctx, name, value)
		if errors.Is(err, chp.ErrUncertain) || errors.Is(err, chp.ErrLeaseEnded) {
			continue // the server has lost its map, or the client
		}
		if err != nil {
			return nil, err
		}
		if try {
			select {
			case <-l.seen: // if it has won, that is known by then
				select {
				case <-l.won:
				default:
					return nil, errors.Join(ErrHeld, l.leave(ctx))
				}
			case <-l.done:
			case <-ctx.Done():
			}
		}
		select {
		case <-l.won:
			if l.Err() == nil {
				return l, nil
			}
		case <-l.done:
		case <-ctx.Done():
			l.leave(ctx)
			return nil, ctx.Err()
		}
		q.mu.Lock()
		err = q.err
		q.mu.Unlock()
		if err != nil {
			return nil, err
		}
		// The place is lost; take another one.
	}
}

// enter creates a key at the end of a line.
func (q *queue) enter(ctx context.Context, name string, value []byte) (*Lock, error) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.ctx, cancel)()
	t, err := q.tenure(limited)
	var id [8]byte
	rand.Read(id[:]) // never fails
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || err != nil {
		return nil, cmp.Or(q.err, err)
	}
	l := &Lock{
		queue: q, key: name + hex.EncodeToString(id[:]), with: t,
		done: make(chan struct{}), won: make(chan struct{}), seen: make(chan struct{}),
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	q.own[l.key] = l
	q.mu.Unlock()
	ticket, err := q.source.create(limited, l.key, value, t.lease)
	q.mu.Lock()
	if err == nil {
		l.ticket = ticket
		return l, nil
	}
	if errors.Is(err, chp.ErrLeaseEnded) {
		_ = t.Close() // the server knows it before the client
	}
	l.end(ErrLost)
	return nil, cmp.Or(q.err, err)
}

// leave gives up a place.
func (l *Lock) leave(ctx context.Context) error {
	if ctx.Err() == nil {
		return l.Unlock(ctx)
	}
	l.queue.mu.Lock()
	l.end(ErrLost)
	l.queue.mu.Unlock()
	return nil
}

// forget deletes the key of a lock as soon as that is possible, unless its lease ends before. mu must be held.
func (q *queue) forget(l *Lock) {
	if q.err == nil && l.with.ctx.Err() == nil {
		q.tasks.Go(func() { _ = q.source.remove(l.with.ctx, l.key) })
	}
}

// Holder is who holds a lock, as far as a client knows.
type Holder struct {
	Key   string // of the lock
	Value []byte // Options.Value, or that of Campaign; not to be changed
	Token int64
}

// holders returns the first places of a line, at most n, and a channel that is closed at the next change, or nil
// after Close.
func (q *queue) holders(name string, n int) (list []Holder, changed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, nil
	}
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	if l := q.lines[name]; l != nil {
		for _, p := range l.places[:min(n, len(l.places))] {
			list = append(list, Holder{p.key, p.value, p.ticket})
		}
	}
	return list, q.changed
}
