package espresso

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// DefaultQueue is the default of Options.Queue.
const DefaultQueue = 16 << 20

// Options configures a Tap. The zero Options are good for use.
type Options struct {
	// Queue bounds what waits for each observer, in bytes of records: a message in
	// wire form and 17 bytes. What the observer has taken to read counts no longer;
	// so an observer holds up to twice as much. Messages for which there is no room
	// are lost for the observer, and counted. 0 means DefaultQueue; otherwise it is
	// from 1 KiB to 2 GiB less one byte.
	Queue int

	// Capture lists sockets that get a copy of each message, as with
	// sockets.Proxy. Unlike observers they can hold up the flow: see
	// sockets.ProxyOptions.
	Capture []sockets.Socket
}

// minQueue is the least Options.Queue.
const minQueue = 1 << 10

// OptionError is one thing that is wrong with an Options.
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "espresso: Options." + e.Field + " " + e.Reason }

// ErrSockets is returned for sockets whose type is unknown.
var ErrSockets = errors.New("espresso: unknown type of socket")

// Tap is a proxy between two sockets whose flow can be observed. All methods are safe
// for concurrent use.
type Tap struct {
	proxy *sockets.SteerableProxy
	ends  Ends
	queue int
	begun time.Time

	observers atomic.Pointer[[]*Observer]

	mu    sync.Mutex // guards changes of observers
	ended bool
}

// NewTap makes a tap between a frontend and a backend, as [sockets.Proxy] has them:
// XSUB and XPUB between publishers and subscribers, ROUTER and DEALER between clients
// and services, PULL and PUSH in a pipeline. The sockets remain the caller's: to bind,
// to connect and to close. The tap forwards nothing before Run.
func NewTap(frontend, backend sockets.Socket, o Options) (*Tap, error) {
	if o.Queue == 0 {
		o.Queue = DefaultQueue
	}
	if o.Queue < minQueue || o.Queue > math.MaxInt32 {
		return nil, &OptionError{"Queue", fmt.Sprintf("is not from %d to %d", minQueue, math.MaxInt32)}
	}
	t := &Tap{ends: Ends{typeOf(frontend), typeOf(backend)}, queue: o.Queue, begun: time.Now()}
	if t.ends.Frontend == zmtp.UNKNOWN || t.ends.Backend == zmtp.UNKNOWN {
		return nil, ErrSockets
	}
	t.observers.Store(new([]*Observer))
	var err error
	t.proxy, err = sockets.NewSteerableProxy(frontend, backend, sockets.ProxyOptions{Capture: o.Capture, Observe: t.show})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Ends returns the types of the two sockets.
func (t *Tap) Ends() Ends { return t.ends }

// Run forwards until the context ends, whose error it then returns, or until one of the
// sockets fails, usually because it was closed. Observers then get io.EOF behind what
// they have not read. A tap runs once.
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

// Stats returns what was forwarded so far.
func (t *Tap) Stats() sockets.ProxyStats { return t.proxy.Statistics() }

// Observe returns an observer of what is forwarded from now on. The caller closes it.
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

// change replaces the list of observers by a changed copy. mu must be held.
func (t *Tap) change(f func([]*Observer) []*Observer) {
	changed := f(append([]*Observer(nil), *t.observers.Load()...))
	t.observers.Store(&changed)
}

// show copies what the proxy has received to the observers. It never waits for one of
// them.
func (t *Tap) show(seen sockets.Observed) {
	all := *t.observers.Load()
	if len(all) == 0 {
		return
	}
	from := FromFrontend
	if seen.FromBackend() {
		from = FromBackend
	}
	now := t.begun.UnixNano() + int64(time.Since(t.begun))
	for _, o := range all {
		o.offer(seen, from, now)
	}
}

// typeOf returns the type of a socket.
func typeOf(s sockets.Socket) zmtp.SocketType {
	switch s.(type) {
	case *sockets.Pair:
		return zmtp.PAIR
	case *sockets.Pub:
		return zmtp.PUB
	case *sockets.Sub:
		return zmtp.SUB
	case *sockets.Req:
		return zmtp.REQ
	case *sockets.Rep:
		return zmtp.REP
	case *sockets.Dealer:
		return zmtp.DEALER
	case *sockets.Router:
		return zmtp.ROUTER
	case *sockets.Pull:
		return zmtp.PULL
	case *sockets.Push:
		return zmtp.PUSH
	case *sockets.XPub:
		return zmtp.XPUB
	case *sockets.XSub:
		return zmtp.XSUB
	}
	return zmtp.UNKNOWN
}
