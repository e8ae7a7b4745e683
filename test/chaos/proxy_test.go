//go:build unix

package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/loopback"
)

// Directions of a proxy.
const (
	toServer = iota
	toClient
	directions
)

// Ports of a server, from P on.
const (
	portSnapshot = iota
	portPublisher
	portCollector
	ports
)

// proxyQueue bounds the bytes that a proxy keeps of one direction of a connection while
// it is held or delayed. The system keeps some more.
const proxyQueue = 128 << 10

// proxy stands in front of one port. Its methods act on its present connections and on
// later ones.
type proxy struct {
	listener net.Listener
	parse    bool // bytes for the client are split into messages, so that some can be left out
	senders  bool // connections come from nodes of a cluster
	running  sync.WaitGroup

	mu      sync.Mutex
	target  string
	pipes   map[*pipe]struct{}
	holds   [directions]int // nothing is carried while above 0; faults may overlap
	delays  [directions]time.Duration
	refuses int             // new connections are reset while above 0
	cut     map[uint64]bool // nodes of which nothing gets through
	drop    int             // how many of the next updates are left out
	dropped int             // how many were
	changed chan struct{}   // closed and replaced when one of these changes
	closed  bool
}

// route is three proxies in front of the ports of one server.
type route struct {
	name    string
	address string // as in ClientOptions.Servers
	ports   [ports]*proxy
}

// newRoute makes the proxies. Until they have a target they reset connections.
func newRoute(t testing.TB, name string, parse bool) *route {
	t.Helper()
	for host := loopback.Own(); ; {
		ls := consecutive(t, host, ports)
		if ls == nil {
			continue
		}
		r := &route{name: name, address: "tcp://" + ls[0].Addr().String()}
		for i, l := range ls {
			r.ports[i] = newProxy(t, l, parse && i == portPublisher)
		}
		return r
	}
}

// consecutive listens on n ports in a row, or returns nil if one of them is taken.
func consecutive(t testing.TB, host string, n int) (ls []net.Listener) {
	t.Helper()
	first, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	ls = append(ls, first)
	port := first.Addr().(*net.TCPAddr).Port
	for i := 1; i < n; i++ {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port+i))
		if err != nil {
			for _, l := range ls {
				l.Close()
			}
			return nil
		}
		ls = append(ls, l)
	}
	return ls
}

func newProxy(t testing.TB, l net.Listener, parse bool) *proxy {
	p := &proxy{listener: l, parse: parse, pipes: map[*pipe]struct{}{}, changed: make(chan struct{})}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (r *route) each(do func(*proxy)) {
	for _, p := range r.ports {
		do(p)
	}
}

// lead leads new connections to a server's ports, host:P and the two above.
func (r *route) lead(host string, port int) {
	for i, p := range r.ports {
		p.lead(fmt.Sprintf("%s:%d", host, port+i))
	}
}

func (p *proxy) lead(target string) {
	p.change(func() { p.target = strings.TrimPrefix(target, "tcp://") })
}

// change changes the proxy's state.
func (p *proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) hold(direction, n int) { p.change(func() { p.holds[direction] += n }) }
func (p *proxy) refuse(n int)          { p.change(func() { p.refuses += n }) }
func (p *proxy) delay(direction int, by time.Duration) {
	p.change(func() { p.delays[direction] += by })
}
func (p *proxy) leaveOut(n int) { p.change(func() { p.drop += n }) }

// each calls do for every present connection.
func (p *proxy) each(do func(*pipe)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pipes {
		do(c)
	}
}

func (p *proxy) close() {
	p.change(func() { p.closed = true })
	p.listener.Close()
	p.each((*pipe).reset)
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.carry(c.(*net.TCPConn)) })
	}
}

// pipe is one connection through a proxy.
type pipe struct {
	proxy *proxy
	ends  [directions]*net.TCPConn // by the direction that leads to them: the server's, the client's
	held  int                      // as proxy.holds, for this connection; guarded by proxy.mu
	from  uint64                   // the node that sends; guarded by proxy.mu
	ended chan struct{}
	once  sync.Once
}

// dialer makes connections with the segments of an Ethernet. With those of the
// loopback interface the system would keep megabytes for a peer that reads nothing,
// and no queue of a server would ever be full.
var dialer = net.Dialer{Timeout: time.Second, Control: func(_, _ string, c syscall.RawConn) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) {
		err = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1400),
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10),
		)
	}), err)
}}

func (p *proxy) carry(client *net.TCPConn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuses > 0 || p.closed || p.target == ""
	p.mu.Unlock()
	var server net.Conn
	if !refuse {
		server, _ = dialer.Dial("tcp", target)
	}
	if server == nil {
		abort(client)
		return
	}
	c := &pipe{proxy: p, ended: make(chan struct{})}
	c.ends[toServer], c.ends[toClient] = server.(*net.TCPConn), client
	p.mu.Lock()
	p.pipes[c] = struct{}{}
	if p.closed {
		c.reset()
	}
	p.mu.Unlock()
	var both sync.WaitGroup
	for d := range directions {
		both.Go(func() { c.run(d) })
	}
	both.Wait()
	c.end()
	p.mu.Lock()
	delete(p.pipes, c)
	p.mu.Unlock()
}

// parcel is bytes in flight, and the time of their arrival.
type parcel struct {
	bytes []byte
	at    time.Time
}

// run carries one direction: one goroutine reads, another writes the bytes when their
// time has come.
func (c *pipe) run(direction int) {
	from, to := c.ends[1-direction], c.ends[direction]
	// Room for the queue in the smallest pieces; how many bytes it holds is counted
	// by the tokens.
	parcels := make(chan parcel, 64)
	room := newTokens(proxyQueue)
	var failed error
	var writer sync.WaitGroup
	writer.Go(func() {
		lost := false
		for b := range parcels {
			if !lost && c.await(direction, b.at) {
				_, err := to.Write(b.bytes)
				lost = err != nil // the other direction tells why; the rest is read and forgotten
			}
			room.give(len(b.bytes))
		}
		// The bytes read before the end have gone out.
		if failed == io.EOF || errors.Is(failed, net.ErrClosed) {
			_ = to.CloseWrite()
		} else {
			abort(to)
		}
	})
	var cut messages
	var who sender
	buffer := make([]byte, 16<<10)
	for failed == nil {
		var n int
		n, failed = from.Read(buffer)
		whole := append([]byte(nil), buffer[:n]...)
		if c.proxy.parse && direction == toClient {
			whole = cut.admit(whole, c.proxy.omits)
		}
		if c.proxy.senders && direction == toServer && who.node == 0 {
			c.proxy.change(func() { c.from = who.see(whole) })
		}
		if len(whole) > 0 {
			room.take(len(whole), c.ended)
			parcels <- parcel{whole, time.Now()}
		}
	}
	close(parcels)
	writer.Wait()
}

// omits tells whether an update is to be left out.
func (p *proxy) omits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drop == 0 {
		return false
	}
	p.drop--
	p.dropped++
	return true
}

// await waits until the bytes that came at the given time may go on. It returns false if
// the connection was reset.
func (c *pipe) await(direction int, at time.Time) bool {
	p := c.proxy
	for {
		p.mu.Lock()
		held, changed := p.holds[direction]+c.held > 0 || direction == toServer && p.cut[c.from], p.changed
		wait := time.Until(at.Add(p.delays[direction]))
		p.mu.Unlock()
		if !held && wait <= 0 {
			return true
		}
		var timer <-chan time.Time
		if !held {
			timer = time.After(wait)
		}
		select {
		case <-changed:
		case <-timer:
		case <-c.ended:
			return false
		}
	}
}

// abort ends one side with a reset.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (c *pipe) end() {
	c.once.Do(func() { close(c.ended) })
	for _, end := range c.ends {
		_ = end.Close()
	}
}

// reset ends both sides at once. Bytes in flight are lost.
func (c *pipe) reset() {
	for _, end := range c.ends {
		_ = end.SetLinger(0)
	}
	c.end()
}

// finish ends both sides after the bytes in flight.
func (c *pipe) finish() {
	for _, end := range c.ends {
		_ = end.CloseRead()
	}
}

// hold is proxy.hold for one connection, in both directions.
func (c *pipe) hold(n int) { c.proxy.change(func() { c.held += n }) }

// forsake resets one side alone. The bytes that it had sent still go to the other, which
// sees the end after them.
func (c *pipe) forsake(direction int) { abort(c.ends[direction]) }

// tokens bound the bytes in a queue.
type tokens struct {
	mu   sync.Mutex
	free int
	more chan struct{}
}

func newTokens(n int) *tokens { return &tokens{free: n, more: make(chan struct{}, 1)} }

// take waits until there is any room; one taker may exceed it.
func (t *tokens) take(n int, ended <-chan struct{}) {
	for {
		t.mu.Lock()
		if t.free > 0 {
			t.free -= n
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		select {
		case <-t.more:
		case <-ended:
			return
		}
	}
}

func (t *tokens) give(n int) {
	t.mu.Lock()
	t.free += n
	t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// messages finds ZMTP 3 messages in a stream of bytes.
type messages struct {
	greeting int // bytes of the greeting that have passed
	pending  []byte
}

const (
	greetingSize = 64
	flagMore     = 1
	flagLong     = 2
	flagCommand  = 4
)

// admit returns the bytes that may go on, of those so far: the greeting, and whole
// messages without the updates for which omits returns true.
func (m *messages) admit(b []byte, omits func() bool) (out []byte) {
	n := min(greetingSize-m.greeting, len(b))
	m.greeting += n
	out = append(out, b[:n]...)
	m.pending = append(m.pending, b[n:]...)
	for {
		size, update, whole := message(m.pending)
		if !whole {
			m.pending = append([]byte(nil), m.pending...)
			return out
		}
		if !update || !omits() {
			out = append(out, m.pending[:size]...)
		}
		m.pending = m.pending[size:]
	}
}

// message returns the size of the first message of b and whether it is an update,
// which has five frames and does not begin with HUGZ.
func message(b []byte) (size int, update, whole bool) {
	frames, hugz := 0, false
	for {
		head := 2
		if len(b)-size < head {
			return 0, false, false
		}
		flags := b[size]
		n := uint64(b[size+1])
		if flags&flagLong != 0 {
			if head = 9; len(b)-size < head {
				return 0, false, false
			}
			n = binary.BigEndian.Uint64(b[size+1:])
		}
		if uint64(len(b)-size-head) < n {
			return 0, false, false
		}
		body := b[size+head : size+head+int(n)]
		if frames == 0 {
			hugz = strings.HasPrefix(string(body), "HUGZ")
		}
		frames++
		size += head + int(n)
		if flags&flagMore == 0 {
			return size, frames == 5 && !hugz && flags&flagCommand == 0, true
		}
	}
}
