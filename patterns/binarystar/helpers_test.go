package binarystar

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

const hang = testenv.Hang

var (
	testContext = testenv.Context
	eventually  = testenv.Eventually
)

// link connects one node to the other: it is an address that forwards to the other node,
// wherever that is, and that can be cut.
type link struct {
	listener net.Listener
	target   atomic.Pointer[string] // host:port, or nil
	carried  atomic.Int64           // connections so far
	running  sync.WaitGroup

	mu    sync.Mutex
	flow  sync.Cond // hole or stuck has changed
	hole  bool      // data is not forwarded
	stuck int64     // data of connections up to this one are not forwarded
	cut   bool
	conns map[net.Conn]bool // nil when the link is closed
}

func newLink(t testing.TB) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, conns: map[net.Conn]bool{}}
	l.flow.L = &l.mu
	l.running.Go(l.accept)
	t.Cleanup(func() {
		l.setHole(false)
		l.setStuck(0)
		listener.Close()
		l.mu.Lock()
		for c := range l.conns {
			c.Close()
		}
		l.conns = nil
		l.mu.Unlock()
		l.running.Wait()
	})
	return l
}

func (l *link) endpoint() string { return "tcp://" + l.listener.Addr().String() }

// lead makes the link forward to an endpoint.
func (l *link) lead(endpoint string) {
	target := endpoint[len("tcp://"):]
	l.target.Store(&target)
}

// astray makes the link lead nowhere. It must when its node ends, since another test may get
// the port of that.
func (l *link) astray() { l.target.Store(nil) }

func (l *link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.carry(c) })
	}
}

// keep adds a connection, or closes it if the link is closed.
func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.conns == nil {
		c.Close()
		return false
	}
	l.conns[c] = true
	return true
}

func (l *link) carry(near net.Conn) {
	defer near.Close()
	target := l.target.Load()
	if target == nil || !l.keep(near) {
		return
	}
	far, err := net.Dial("tcp", *target)
	if err != nil {
		return
	}
	defer far.Close()
	if !l.keep(far) {
		return
	}
	number := l.carried.Add(1)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			defer near.Close()
			defer far.Close()
			io.Copy(way[1], gated{way[0], l, number})
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, near)
	delete(l.conns, far)
}

// gated reads from a connection, and blocks while the link is a hole.
type gated struct {
	net.Conn
	l      *link
	number int64
}

func (g gated) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	for g.l.hole || g.number <= g.l.stuck {
		g.l.flow.Wait()
	}
	return n, err
}

// setHole makes the link forward no data, or all of it again.
func (l *link) setHole(hole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hole = hole
	l.flow.Broadcast()
}

// setStuck makes the link forward no data of the connections up to this one.
func (l *link) setStuck(number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = number
	l.flow.Broadcast()
}

// setCut cuts or restores the link.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for c := range l.conns {
			c.Close()
		}
		clear(l.conns)
	}
}

// couple is two nodes that are connected by links.
type couple struct {
	t     testing.TB
	nodes [2]*Node // primary, backup; nil while it is down
	hears [2]*link
	opts  [2]Options
}

// newCouple makes the links and the options of both nodes, which change may change.
func newCouple(t testing.TB, change func(o *Options)) *couple {
	t.Helper()
	c := &couple{t: t}
	for i, role := range []Role{RolePrimary, RoleBackup} {
		c.hears[i] = newLink(t)
		c.opts[i] = Options{
			Role: role, Bind: "tcp://127.0.0.1:*", Peer: c.hears[i].endpoint(),
			Interval: 20 * time.Millisecond, Timeout: 300 * time.Millisecond,
		}
		if change != nil {
			change(&c.opts[i])
		}
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.kill(i)
		}
	})
	return c
}

// start starts a node with its previous epoch.
func (c *couple) start(i int) *Node {
	c.t.Helper()
	n, err := New(testContext(c.t), c.opts[i])
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[i] = n
	c.hears[1-i].lead(n.Endpoint())
	return n
}

// kill ends a node without a message to its peer.
func (c *couple) kill(i int) {
	if n := c.nodes[i]; n != nil {
		c.hears[1-i].astray()
		c.opts[i].Epoch = n.Epoch()
		n.Close()
		c.nodes[i] = nil
	}
}

// both starts both and waits until the primary is active.
func (c *couple) both() (primary, backup *Node) {
	c.t.Helper()
	primary, backup = c.start(0), c.start(1)
	c.settled(0)
	return primary, backup
}

// follows reports whether one node is active, the other one passive, and both know it.
func (c *couple) follows(active int) bool {
	a, p := c.nodes[active].Status(), c.nodes[1-active].Status()
	return a.State == StateActive && p.State == StatePassive && a.Epoch == p.Epoch &&
		a.Peer.Alive && p.Peer.Alive && a.Peer.State == StatePassive && p.Peer.State == StateActive
}

// settled waits until the other node follows this one.
func (c *couple) settled(active int) {
	c.t.Helper()
	eventually(c.t, "one node is active and the other one passive", func() bool { return c.follows(active) })
}

// anySettled waits until one of them follows the other one.
func (c *couple) anySettled() (active int) {
	c.t.Helper()
	eventually(c.t, "one node is active and the other one passive", func() bool {
		active = 1 - active
		return c.follows(active)
	})
	return active
}

// elect votes for a node until it accepts.
func elect(t testing.TB, n *Node) {
	t.Helper()
	eventually(t, "a vote is accepted", func() bool {
		accept, err := n.Vote(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return accept
	})
}

// handOver makes the peer of an active node take over. Both know each other, but on a loaded
// machine one can seem silent for a moment.
func handOver(t testing.TB, n *Node) {
	t.Helper()
	eventually(t, "the peer takes over", func() bool {
		err := n.Handover(testContext(t))
		if err != nil && !errors.Is(err, ErrNoSuccessor) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

var errTest = errors.New("a test's")
