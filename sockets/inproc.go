package sockets

import (
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"clustermap/zmtp"
)

// Inproc is a namespace of inproc endpoints: inproc://name connects sockets of
// one process that have the same namespace in [Options.Inproc]. Without one of
// their own, all sockets of a process share one; a library or a test that makes
// its own cannot meet the names of others. libzmq has a context for this.
//
// The zero Inproc is empty and ready for use. It must not be copied. Safe for
// concurrent use.
//
// What differs from a network:
//
//   - Messages are handed over in memory, from the queue of the sender to that of
//     the receiver, without a goroutine in between. The queue of each direction is
//     bounded by the sum of the sender's SendHWM and the receiver's RecvHWM
//     (and of the bounds in bytes), or not at all if one of them is not. As
//     long as a Connect waits for its Bind, the connecting side's own bound
//     counts.
//   - There is no handshake, and so none of its options apply, nor those of
//     security and of heartbeats, nor MaxMessageSize on the receiving side;
//     identities and metadata are exchanged as elsewhere.
//     Socket types that do not fit are refused (libzmq lets them be).
//   - What a closing socket has sent stays for the receiver, whatever the
//     sender's Linger. Linger counts only while a Connect waits for its Bind, or
//     for an identity that another connection has (see ErrIdentityInUse).
//   - Connect, Subscribe, Unsubscribe and Disconnect have taken effect on both
//     sides when they return; see Subscribe for the one exception.
//   - A connection that has ended is not made again. Its end is told as
//     Disconnected, and Connect can be called anew. The monitor is also told of
//     Listening, HandshakeSucceeded, PeerIgnored and ListenerClosed, and of no
//     attempts. libzmq tells nothing.
//   - Unbind frees the name and leaves the connections.
//   - Options.Prepare runs in the goroutine that receives.
type Inproc struct {
	mu      sync.Mutex
	bound   map[string]*inprocListener
	waiting map[string][]*dialer // Connects before their Bind, in their order
}

// process is the namespace of sockets that have none of their own.
var process Inproc

func (s *socket) inproc() *Inproc {
	if s.opts.Inproc != nil {
		return s.opts.Inproc
	}
	return &process
}

// inprocAddr is the address of an inproc endpoint.
type inprocAddr string

func (a inprocAddr) Network() string { return transportInproc }
func (a inprocAddr) String() string  { return transportInproc + "://" + string(a) }

// inprocListener is a bound name. As a net.Listener it accepts nothing: those
// who connect come to it on their own.
type inprocListener struct {
	names  *Inproc
	name   string
	socket *socket
	done   chan struct{}
	once   sync.Once
}

func (l *inprocListener) Addr() net.Addr { return inprocAddr(l.name) }

func (l *inprocListener) Accept() (net.Conn, error) {
	<-l.done
	return nil, net.ErrClosed
}

// Close frees the name.
func (l *inprocListener) Close() error {
	l.once.Do(func() {
		l.names.forget(l)
		close(l.done)
	})
	return nil
}

func (n *Inproc) forget(l *inprocListener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bound[l.name] == l {
		delete(n.bound, l.name)
	}
}

// listen takes a name. Who waits for it is connected by admit.
func (n *Inproc) listen(s *socket, name string) (*inprocListener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bound[name] != nil {
		return nil, &net.OpError{
			Op: "listen", Net: transportInproc, Addr: inprocAddr(name),
			Err: os.NewSyscallError("bind", syscall.EADDRINUSE),
		}
	}
	l := &inprocListener{names: n, name: name, socket: s, done: make(chan struct{})}
	if n.bound == nil {
		n.bound = map[string]*inprocListener{}
	}
	n.bound[name] = l
	return l, nil
}

// admit connects those who have waited for a name. No lock may be held.
func (l *inprocListener) admit() {
	n := l.names
	n.mu.Lock()
	waiting := n.waiting[l.name]
	delete(n.waiting, l.name)
	n.mu.Unlock()
	for _, d := range waiting {
		n.connect(d)
	}
}

// connect connects d, or has it wait for its name to be bound. No lock may be
// held.
func (n *Inproc) connect(d *dialer) {
	name := d.endpoint.name
	for {
		n.mu.Lock()
		l := n.bound[name]
		if l == nil {
			if d.ctx.Err() != nil { // too late for cancel
				n.mu.Unlock()
				d.joined <- nil
				return
			}
			if n.waiting == nil {
				n.waiting = map[string][]*dialer{}
			}
			n.waiting[name] = append(n.waiting[name], d)
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		if join(d, l.socket) {
			return
		}
		n.forget(l) // its socket is being closed
	}
}

// cancel takes d out of those who wait. It reports false if d is not there,
// because it is being connected.
func (n *Inproc) cancel(d *dialer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := d.endpoint.name
	i := slices.Index(n.waiting[name], d)
	if i < 0 {
		return false
	}
	if n.waiting[name] = slices.Delete(n.waiting[name], i, i+1); len(n.waiting[name]) == 0 {
		delete(n.waiting, name)
	}
	return true
}

// runInproc serves a connection from the moment that it is made to its end.
func (d *dialer) runInproc() {
	defer d.end()
	var h *half
	select {
	case h = <-d.joined:
	case <-d.ctx.Done():
		if d.socket.inproc().cancel(d) {
			return
		}
		h = <-d.joined
	}
	if h != nil {
		h.run(d.ctx)
	}
}

// join connects the socket of d with b, which is bound, and leaves d its half.
// It reports false, and has done nothing, if b is being closed.
func join(d *dialer, b *socket) bool {
	a := d.socket
	name := d.endpoint.text
	if !zmtp.Compatible(a.kind, b.kind) {
		err := &zmtp.ProtocolError{Op: "inproc", Reason: a.kind.String() + " and " + b.kind.String(), Err: zmtp.ErrIncompatible}
		for _, s := range []*socket{a, b} {
			s.report(Event{Kind: HandshakeFailed, Endpoint: name, Remote: name, Err: &PeerError{name, err}})
		}
		d.joined <- nil
		return true
	}
	far := newHalf(newPipe(b, name, false), a)
	near := newHalf(d.pipe, b)
	near.other, far.other = far, near
	near.ending = new(sync.Once)
	far.ending = near.ending
	near.peer.far, far.peer.far = far, near
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.pipes[far.pipe] = struct{}{}
	b.wg.Add(1)
	b.mu.Unlock()

	// Who was bound comes first, so that what the other one says as it is
	// attached finds it ready.
	far.attach()
	near.attach()
	far.begin()
	near.begin()
	// What a newcomer sends waits until it is admitted.
	if near.newcomer == nil {
		far.open()
	}
	if far.newcomer == nil {
		near.open()
	}
	for _, h := range []*half{far, near} {
		if h.eager {
			h.pump()
		}
	}
	d.near.Store(near)
	go func() {
		defer b.wg.Done()
		far.run(b.ctx)
	}()
	d.joined <- near
	return true
}

// announced is what the socket tells of itself.
func (s *socket) announced() zmtp.Peer {
	config := zmtp.HandshakeConfig{SocketType: s.kind, Identity: s.opts.Identity, Metadata: s.opts.metadata()}
	// It parses: it is what peers would be sent.
	m, _ := zmtp.ParseMetadata(config.AppendProperties(nil))
	id, _ := m.Get(zmtp.PropertyIdentity)
	return zmtp.Peer{Major: 3, Minor: 1, SocketType: s.kind, Identity: id, Metadata: m}
}
