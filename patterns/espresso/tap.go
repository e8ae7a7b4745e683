package espresso

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/option"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Options configures a Tap. The zero value works.
type Options struct {
	// Queue bounds the unread records of each observer in bytes: a message in wire
	// form and 17 bytes. The observer reads from a second buffer, so it holds up to
	// twice as much. Messages for which there is no room are lost for the observer,
	// and counted. Queue must be from 1 KiB to 2 GiB - 1. 0 means DefaultQueue.
	Queue int

	// Capture lists sockets that get a copy of each message, as with
	// sockets.Proxy. Unlike observers they can delay the traffic: see
	// sockets.ProxyOptions.
	Capture []sockets.Socket
}

// OptionError describes an invalid field of Options.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// ErrSockets is returned for sockets of unknown types.
var ErrSockets = errors.New("espresso: unknown type of socket")

// Tap is a proxy between two sockets that can be observed. All methods are safe for
// concurrent use.
type Tap struct {
	proxy *sockets.SteerableProxy
	ends  Ends
	queue int
	begun time.Time

	observers atomic.Pointer[[]*Observer]

	mu    sync.Mutex // guards changes of observers
	ended bool
}

// NewTap returns a tap between a frontend and a backend, as for [sockets.Proxy]: XSUB and
// XPUB between publishers and subscribers, ROUTER and DEALER between clients and
// services, PULL and PUSH in a pipeline. The caller binds, connects and closes the
// sockets. The tap forwards nothing before Run.
func NewTap(frontend, backend sockets.Socket, o Options) (*Tap, error) {
	o.Queue = cmp.Or(o.Queue, DefaultQueue)
	if o.Queue < minQueue || o.Queue > math.MaxInt32 {
		return nil, option.New("espresso", "Queue", "is not from %d to %d", minQueue, math.MaxInt32)
	}
	if frontend == nil || backend == nil {
		return nil, ErrSockets
	}
	t := &Tap{ends: Ends{hooks.Kind(frontend), hooks.Kind(backend)}, queue: o.Queue, begun: time.Now()}
	if t.ends.Frontend == zmtp.TypeStream || t.ends.Backend == zmtp.TypeStream {
		return nil, ErrSockets
	}
	t.observers.Store(new([]*Observer))
	var err error
	t.proxy, err = sockets.NewSteerableProxy(frontend, backend, sockets.ProxyOptions{Capture: o.Capture, Observe: t.distribute})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Ends returns the types of the two sockets.
func (t *Tap) Ends() Ends { return t.ends }

// Run forwards messages until the context ends, and returns its error, or until a socket
// fails, usually because it was closed. Observers then get io.EOF after their unread
// events. A tap runs only once.
func (t *Tap) Run(ctx context.Context) error {
	err := t.proxy.Run(ctx)
	if errors.Is(err, sockets.ErrRunning) {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, o := range *t.observers.Load() {
		o.end()
	}
	return err
}

// Stats returns the counters of the proxy.
func (t *Tap) Stats() sockets.ProxyStats { return t.proxy.Statistics() }

// Observe returns an observer of the messages from now on. The caller closes it.
func (t *Tap) Observe(f Filter) *Observer {
	o := newObserver(t, f)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		o.end()
		return o
	}
	t.change(func(all []*Observer) []*Observer { return append(all, o) })
	return o
}

// change replaces the list of observers with a changed copy. mu must be held.
func (t *Tap) change(f func([]*Observer) []*Observer) {
	changed := f(append([]*Observer(nil), *t.observers.Load()...))
	t.observers.Store(&changed)
}

// distribute copies the received messages to the observers. It never waits for them.
func (t *Tap) distribute(seen sockets.Observed) {
	all := *t.observers.Load()
	if len(all) == 0 {
		return
	}
	from := DirectionFromFrontend
	if seen.FromBackend() {
		from = DirectionFromBackend
	}
	now := t.begun.UnixNano() + int64(time.Since(t.begun))
	for _, o := range all {
		o.offer(seen, from, now)
	}
}
