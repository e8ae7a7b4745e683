package engine

import (
	"net"
	"os"
	"sync"
	"syscall"

	"clustermap/internal/link"
	"clustermap/zmtp"
)

// Names is a namespace of inproc endpoints; see sockets.Inproc.
type Names struct {
	mu      sync.Mutex
	bound   map[string]*inprocListener
	waiting map[string][]*dialer // dialers that wait for their Bind, in order
	guarded bool                 // a ZAP handler was bound
}

// Count returns the number of names that are bound, and of those that are waited for.
func (n *Names) Count() (bound, waiting int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.bound), len(n.waiting)
}

// ZAPName is the name where a ZAP handler is bound (RFC 27).
const ZAPName = "zeromq.zap.01"

// ZAP reports whether a ZAP handler is bound, and whether one ever was.
func (n *Names) ZAP() (bound, ever bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bound[ZAPName] != nil, n.guarded
}

// inprocAddr is the address of an inproc endpoint.
type inprocAddr string

func (a inprocAddr) Network() string { return link.Inproc }
func (a inprocAddr) String() string  { return link.Inproc + "://" + string(a) }

// inprocListener is a bound name. It implements net.Listener but accepts
// nothing: connecting sockets find it by its name.
type inprocListener struct {
	names  *Names
	name   string
	socket *Socket
	done   chan struct{}
}

func (l *inprocListener) Addr() net.Addr { return inprocAddr(l.name) }

func (l *inprocListener) Accept() (net.Conn, error) {
	<-l.done
	return nil, net.ErrClosed
}

// Close releases the name.
func (l *inprocListener) Close() error {
	l.names.forget(l)
	close(l.done)
	return nil
}

func (n *Names) forget(l *inprocListener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bound[l.name] == l {
		delete(n.bound, l.name)
	}
}

// listen binds a name. Dialers that wait for it are connected by admit.
func (n *Names) listen(s *Socket, name string) (*inprocListener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bound[name] != nil {
		return nil, &net.OpError{
			Op: "listen", Net: link.Inproc, Addr: inprocAddr(name),
			Err: os.NewSyscallError("bind", syscall.EADDRINUSE),
		}
	}
	l := &inprocListener{names: n, name: name, socket: s, done: make(chan struct{})}
	if n.bound == nil {
		n.bound = map[string]*inprocListener{}
	}
	n.bound[name] = l
	n.guarded = n.guarded || name == ZAPName
	return l, nil
}

// admit connects the dialers that have waited for a name. No lock may be held.
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

// connect connects d, or makes it wait until its name is bound. No lock may be
// held.
func (n *Names) connect(d *dialer) {
	name := d.endpoint.Name
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

// cancel removes d from the dialers that wait. It reports false if d does not
// wait, because it is being connected.
func (n *Names) cancel(d *dialer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return DropFrom(n.waiting, d.endpoint.Name, d)
}

// runInproc serves a connection from its beginning to its end.
func (d *dialer) runInproc() {
	defer d.abandon()
	var h *half
	select {
	case h = <-d.joined:
	case <-d.ctx.Done():
		if d.socket.Config().Inproc.cancel(d) {
			return
		}
		h = <-d.joined
	}
	if h != nil {
		d.attempts.failed(h.run(d.ctx), true)
	}
}

// join connects the socket of d with b, which is bound, and passes its half to
// d. It reports false, and has done nothing, if b is being closed.
func join(d *dialer, b *Socket) bool {
	a := d.socket
	name := d.endpoint.Text
	if !zmtp.Compatible(a.kind, b.kind) {
		err := &zmtp.ProtocolError{Op: "inproc", Reason: a.kind.String() + " and " + b.kind.String(), Err: zmtp.ErrIncompatible}
		for _, s := range []*Socket{a, b} {
			s.report(Event{Kind: HandshakeFailed, Endpoint: name, Remote: name, Err: &PeerError{name, err}})
		}
		d.attempts.failed(err, false)
		d.joined <- nil
		return true
	}
	far := newHalf(NewPipe(b, name, false), a)
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
	far.pipe.Out.SetLimits(b.Config().Send) // they may have changed since it was made
	b.wg.Add(1)
	b.mu.Unlock()

	// The bound socket comes first, so that it is ready for the messages that the other
	// one sends when it is attached.
	far.attach()
	near.attach()
	far.begin()
	near.begin()
	// The messages of a newcomer wait until it is admitted.
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
		_ = far.run(b.ctx) // reports the error itself
	}()
	d.joined <- near
	return true
}

// announced returns the description of the socket for its peers.
func (s *Socket) announced() zmtp.Peer {
	config := zmtp.HandshakeConfig{SocketType: s.kind, Identity: s.Config().Identity, Metadata: s.Config().Metadata}
	// This cannot fail, because these properties would be sent to peers.
	m, _ := zmtp.ParseMetadata(config.AppendProperties(nil))
	id, _ := m.Get(zmtp.PropertyIdentity)
	return zmtp.Peer{Major: 3, Minor: 1, SocketType: s.kind, Identity: id, Metadata: m}
}
