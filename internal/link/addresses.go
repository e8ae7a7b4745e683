package link

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A name can stand for several addresses, of which some may not answer: as in RFC 8305
// (Happy Eyeballs) an attempt to connect resolves the name, begins with its first
// address, and begins with the next one when one has failed, or has not answered for
// attemptDelay. The first connection wins. An attempt begins with addresses that have
// not failed lately, so that no address can keep the others from being tried, however
// short the attempt.

// names dials hosts by name.
type names struct {
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error) // network is ip, ip4 or ip6
	past    history
}

// system is the system's resolver, and what is known of the addresses that it gave.
var system = names{resolve: func(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, network, host) // the one of now: a program may replace it
}}

// dial makes one attempt to connect to host:port. dial connects to a single address.
func (n *names) dial(ctx context.Context, dial dialFunc, network, address string) (net.Conn, error) {
	l, err := n.lookUp(ctx, network, address)
	if err != nil {
		return nil, err
	}
	defer l.end()
	all, more, err := l.first()
	if err != nil {
		return nil, err
	}
	nc, _, err := n.race(ctx, dial, network, all, more)
	return nc, err
}

// interleave returns addresses with alternating families, beginning with that of the
// first one.
func interleave(all []netip.Addr) []netip.Addr {
	var first, other []netip.Addr
	for _, a := range all {
		if a.Is4() == all[0].Is4() {
			first = append(first, a)
		} else {
			other = append(other, a)
		}
	}
	mixed := make([]netip.Addr, 0, len(all))
	for i := range max(len(first), len(other)) {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(other) {
			mixed = append(mixed, other[i])
		}
	}
	return mixed
}

// race connects to one of the addresses, and returns which. more, which can be nil, has
// further addresses and is closed after them. Nothing that race has begun goes on after it
// has returned.
func (n *names) race(ctx context.Context, dial dialFunc, network string, all []netip.AddrPort, more <-chan []netip.AddrPort) (net.Conn, netip.Addr, error) {
	if len(all) == 1 && more == nil {
		nc, err := dial(ctx, network, all[0].String())
		return nc, all[0].Addr(), err
	}
	type result struct {
		index int
		nc    net.Conn
		err   error
	}
	racing, stop := context.WithCancel(ctx)
	results := make(chan result) // all that have begun are received
	begun, pending := 0, make(map[int]bool)
	due := false // the next one may begin at once
	defer func() {
		stop()
		for range len(pending) {
			if r := <-results; r.nc != nil {
				_ = r.nc.Close() // nothing was sent
			}
		}
	}()
	delay := time.NewTimer(0)
	defer delay.Stop()
	var errs []error
	for begun < len(all) && ctx.Err() == nil || len(pending) > 0 || more != nil {
		select {
		case <-delay.C:
			if due = begun == len(all); due || ctx.Err() != nil {
				continue
			}
			index, address := begun, all[begun].String()
			begun++
			pending[index] = true
			go func() {
				nc, err := dial(racing, network, address)
				results <- result{index, nc, err}
			}()
			delay.Reset(attemptDelay)
		case list, ok := <-more:
			if !ok {
				more = nil
			}
			for _, a := range list {
				if !slices.Contains(all, a) {
					all = append(all, a)
				}
			}
			if due {
				delay.Reset(0)
			}
		case r := <-results:
			delete(pending, r.index)
			if r.err == nil {
				for index := range pending {
					if index < r.index { // it had at least attemptDelay more
						n.past.failed(all[index].Addr(), time.Now())
					}
				}
				return r.nc, all[r.index].Addr(), nil
			}
			errs = append(errs, r.err)
			if !errors.Is(ctx.Err(), context.Canceled) {
				n.past.failed(all[r.index].Addr(), time.Now())
			}
			delay.Reset(0)
		}
	}
	return nil, netip.Addr{}, telling(errs)
}

// telling returns the first error that is not only of this machine, which cannot use the
// address's family.
func telling(errs []error) error {
	for _, err := range errs {
		var family *net.AddrError
		if err != nil && !errors.As(err, &family) && !errors.Is(err, syscall.ENETUNREACH) {
			return err
		}
	}
	return cmp.Or(errs...)
}

// history is which addresses have failed lately, of all names of the process. It only
// decides in which order addresses are tried.
type history struct {
	mu   sync.Mutex
	when map[netip.Addr]time.Time
}

// failed notes that an address has not answered, or not as it should.
func (h *history) failed(a netip.Addr, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.when == nil {
		h.when = map[netip.Addr]time.Time{}
	}
	if _, known := h.when[a]; !known && len(h.when) >= historySize {
		for other, t := range h.when {
			if len(h.when) >= historySize || now.Sub(t) >= historyTime {
				delete(h.when, other)
			}
		}
	}
	h.when[a] = now
}

// worked notes that an address has answered.
func (h *history) worked(a netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.when, a)
}

// sort returns the addresses that have not failed lately, in their order, and then the
// others, the longest ago first.
func (h *history) sort(all []netip.Addr, now time.Time) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(all, func(a, b netip.Addr) int {
		return h.lately(a, now).Compare(h.lately(b, now))
	})
	return all
}

// lately returns when an address has last failed, or the zero time if that is long ago or
// has not happened. mu must be held.
func (h *history) lately(a netip.Addr, now time.Time) time.Time {
	if t := h.when[a]; now.Sub(t) < historyTime {
		return t
	}
	return time.Time{}
}

// Failed notes that a connection was of no use: the peer did not complete the handshake, or
// fell silent. If the endpoint's name has several addresses, the next attempt begins with
// another one.
func Failed(nc net.Conn) {
	if a, ok := addressOf(nc); ok {
		system.past.failed(a, time.Now())
	}
}

// Worked notes that the peer of a connection has completed the handshake.
func Worked(nc net.Conn) {
	if a, ok := addressOf(nc); ok {
		system.past.worked(a)
	}
}

// addressOf returns the address of the other end of a TCP connection.
func addressOf(nc net.Conn) (netip.Addr, bool) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return netip.Addr{}, false
	}
	a, ok := tc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return a.AddrPort().Addr().Unmap(), true
}

// Host connects to the ports of one host at a single address, also if its name has several:
// the first connection decides at which. It is for protocols that need several connections
// to the same server. Its methods are safe for concurrent use.
type Host struct {
	names   *names
	avoid   []netip.Addr
	begun   atomic.Pointer[netip.Addr] // see At
	turn    chan struct{}              // has an element while a call looks for the address; guards address
	address netip.Addr                 // invalid until it is known
	all     []netip.Addr               // of the name, if it has several; guarded by turn
}

// NewHost returns a Host. It begins with other addresses of the name, if there are some, than
// those in avoid, at which attempts are still under way.
func NewHost(avoid []netip.Addr) *Host {
	return &Host{names: &system, avoid: avoid, turn: make(chan struct{}, 1)}
}

// At returns the address of the connections or, until there is one, that with which the
// attempt has begun. It is not valid before the name is resolved.
func (h *Host) At() (a netip.Addr) {
	if at := h.begun.Load(); at != nil {
		a = *at
	}
	return a
}

// Dial makes one attempt to connect, like net.Dialer.DialContext. It waits while another
// call looks for the address. Networks other than tcp have no names.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return h.dial(ctx, d.DialContext, network, address)
}

func (h *Host) dial(ctx context.Context, dial dialFunc, network, address string) (net.Conn, error) {
	if network != "tcp" {
		return dial(ctx, network, address)
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	if nc, err := h.look(ctx, dial, network, address); nc != nil || err != nil {
		<-h.turn
		return nc, err
	}
	known := h.address
	<-h.turn
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return dial(ctx, network, net.JoinHostPort(known.String(), port))
}

// look finds the address unless it is known. If the name has several, look returns the
// connection to the one that it has found.
func (h *Host) look(ctx context.Context, dial dialFunc, network, address string) (net.Conn, error) {
	if h.address.IsValid() {
		return nil, nil
	}
	l, err := h.names.lookUp(ctx, network, address)
	if err != nil {
		return nil, err
	}
	defer l.end()
	all, more, err := l.first()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b netip.AddrPort) int { return cmp.Compare(h.avoided(a), h.avoided(b)) })
	at := all[0].Addr()
	h.begun.Store(&at)
	if len(all) == 1 && more == nil {
		h.address = at // the other calls need not wait for the connection
		return nil, nil
	}
	h.all = h.all[:0]
	for _, a := range all {
		h.all = append(h.all, a.Addr())
	}
	nc, won, err := h.names.race(ctx, dial, network, all, more)
	if err == nil {
		h.address = won
		h.begun.Store(&won)
	}
	return nc, err
}

// avoided returns 1 for an address that others are at, else 0.
func (h *Host) avoided(a netip.AddrPort) int {
	if slices.Contains(h.avoid, a.Addr()) {
		return 1
	}
	return 0
}

// Failed notes that the server at the address was of no use. If the name has several, the
// next attempt begins with another one.
func (h *Host) Failed() {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.address.IsValid() {
		h.names.past.failed(h.address, time.Now())
	}
}

// Untried reports whether the name has an address at which no attempt has failed lately, so
// that the next one may find another server.
func (h *Host) Untried() bool {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	past := &h.names.past
	past.mu.Lock()
	defer past.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(h.all, func(a netip.Addr) bool { return past.lately(a, now).IsZero() })
}
