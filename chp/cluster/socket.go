package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"clustermap/sockets"
)

// SocketOptions are the settings of a [SocketTransport].
type SocketOptions struct {
	Node    uint64
	Cluster ID
	// Listen is the endpoint on which this node listens, such as tcp://0.0.0.0:5560.
	Listen string
	// Bound and Connected are the options of the sockets that listen and connect. Security is for
	// them: a node is a server for those that connect to it, and a client of the others.
	Bound, Connected sockets.Options
	// Peer, if not nil, changes the options of the socket that connects to a node, whose key may be its own.
	Peer func(node uint64, o *sockets.Options)
	// QueueBytes is how much waits for a peer at most; what is more is dropped, and sent again when
	// the peer answers. If 0, it is DefaultQueueBytes.
	QueueBytes int
	// Logger gets what an operator should know. If nil, nothing is logged.
	Logger *slog.Logger
}

// Format prints the options without keys.
func (o SocketOptions) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "transport of node %d at %s", o.Node, o.Listen)
}

// A SocketTransport carries messages between nodes over sockets: a PULL that all others connect to,
// and a PUSH to each of them, with a queue of its own. So a peer that does not read delays no
// other.
type SocketTransport struct {
	options SocketOptions
	pull    *sockets.Pull
	cancel  context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup

	mu     sync.Mutex
	peers  map[uint64]*peer
	frames [][]byte // scratch
	closed bool
	warned bool
}

type peer struct {
	address string
	push    *sockets.Push
}

var _ Transport = (*SocketTransport)(nil)

// NewSocketTransport returns a transport that listens.
func NewSocketTransport(ctx context.Context, o SocketOptions) (*SocketTransport, error) {
	if o.QueueBytes == 0 {
		o.QueueBytes = DefaultQueueBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := o.Bound
	b.MaxMessageSize = maxHeadBytes + maxEntryBytes + maxMessageBytes + 4096
	b.RecvHWM = sockets.Unlimited
	b.RecvHWMBytes = o.QueueBytes
	pull, err := sockets.NewPull(b)
	if err != nil {
		return nil, err
	}
	if err := pull.Bind(ctx, o.Listen); err != nil {
		return nil, errors.Join(err, pull.Close())
	}
	t := &SocketTransport{options: o, pull: pull, peers: map[uint64]*peer{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// Format prints the addresses of a transport, and no keys.
func (t *SocketTransport) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "transport of node %d at %s", t.options.Node, t.Address())
}

// Address returns the endpoint on which the node listens.
func (t *SocketTransport) Address() string { return t.pull.LastEndpoint() }

// Start receives messages from now on.
func (t *SocketTransport) Start(receive func(*Message)) error {
	t.running.Go(func() {
		for {
			frames, err := t.pull.Recv(t.ctx)
			if err != nil {
				return
			}
			m, err := decode(frames, t.options.Cluster)
			if err == nil && m.To != t.options.Node {
				err = fmt.Errorf("%w: it is for node %d", errWire, m.To)
			}
			if err != nil {
				t.warn(err)
				continue
			}
			receive(m)
		}
	})
	return nil
}

// warn logs the first message that is not from a node of this cluster.
func (t *SocketTransport) warn(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.warned {
		t.warned = true
		t.options.Logger.Warn("a message of another node was refused", "error", err)
	}
}

// Peers sets who can be sent to.
func (t *SocketTransport) Peers(to map[uint64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for id, p := range t.peers {
		if to[id] != p.address {
			t.running.Go(func() { p.push.Close() })
			delete(t.peers, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(to)) {
		if id == t.options.Node || t.peers[id] != nil {
			continue
		}
		p, err := t.connect(id, to[id])
		if err != nil {
			t.options.Logger.Warn("a node cannot be reached", "node", id, "address", to[id], "error", err)
			continue
		}
		t.peers[id] = p
	}
}

// SetSecurity replaces the security of the sockets that listen and connect. Connections that there are stay; those
// that begin later have the new one.
func (t *SocketTransport) SetSecurity(bound, connected sockets.Security) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.options.Bound.Security, t.options.Connected.Security = bound, connected
	err := t.pull.SetOptions(func(o *sockets.Options) { o.Security = bound })
	for _, p := range t.peers {
		err = errors.Join(err, p.push.SetOptions(func(o *sockets.Options) { o.Security = connected }))
	}
	return err
}

func (t *SocketTransport) connect(id uint64, address string) (*peer, error) {
	o := t.options.Connected
	if t.options.Peer != nil {
		t.options.Peer(id, &o)
	}
	o.Immediate = true // what a peer missed is sent again when it answers
	o.Linger = sockets.LingerNone
	o.SendHWM = sockets.Unlimited
	o.SendHWMBytes = t.options.QueueBytes
	if o.ReconnectInterval == 0 {
		o.ReconnectInterval = reconnectInterval
	}
	if o.ReconnectIntervalMax == 0 {
		o.ReconnectIntervalMax = reconnectIntervalMax
	}
	if o.HeartbeatInterval == 0 {
		o.HeartbeatInterval = heartbeatInterval
	}
	push, err := sockets.NewPush(o)
	if err != nil {
		return nil, err
	}
	if err := push.Connect(address); err != nil {
		return nil, errors.Join(err, push.Close())
	}
	return &peer{address, push}, nil
}

// Send queues a message.
func (t *SocketTransport) Send(m *Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[m.To]
	if p == nil || t.closed {
		return false
	}
	frames, err := encode(m, t.options.Cluster, t.frames)
	if err != nil {
		return false
	}
	t.frames = frames
	err = p.push.TrySend(frames...)
	clear(frames)
	return err == nil
}

// Close ends all.
func (t *SocketTransport) Close() error {
	t.mu.Lock()
	t.closed = true
	peers := t.peers
	t.peers = nil
	t.mu.Unlock()
	t.cancel()
	err := t.pull.Close()
	for _, p := range peers {
		err = errors.Join(err, p.push.Close())
	}
	t.running.Wait()
	return err
}
