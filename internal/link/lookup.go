package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// lookup finds the addresses of the host of one attempt to connect. The resolver answers
// when it knows those of both families. A DNS server can be silent about one of them (RFC
// 4074, section 4.1), and the attempt would be over before the resolver gives up; so, as in
// RFC 8305, section 3, the attempt begins with the addresses that are known.
type lookup struct {
	names *names
	host  string
	port  uint16
	stop  context.CancelFunc
	found chan []netip.AddrPort // never empty; closed when all are known
	whole chan struct{}         // closed before the last element of found is sent
	err   error                 // why nothing was found; read after found is closed
}

// lookUp begins to look up the host of host:port. The caller must call end.
func (n *names) lookUp(ctx context.Context, network, address string) (*lookup, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.AddrError{Err: "invalid port", Addr: address}}
	}
	l := &lookup{names: n, host: host, port: uint16(port), found: make(chan []netip.AddrPort), whole: make(chan struct{})}
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		defer close(l.found)
		if err := l.run(ctx); err != nil {
			l.err = &net.OpError{Op: "dial", Net: network, Err: err}
		}
	}()
	return l, nil
}

// end ends the look-up and waits for it.
func (l *lookup) end() {
	l.stop()
	for range l.found {
	}
}

// first returns the addresses that are known first, at least one, in the order in which to
// try them. more is nil if these are all, and otherwise closed after the others.
func (l *lookup) first() (all []netip.AddrPort, more <-chan []netip.AddrPort, err error) {
	all, ok := <-l.found
	if !ok {
		return nil, nil, l.err
	}
	select {
	case <-l.whole:
		return all, nil, nil
	default:
		return all, l.found, nil
	}
}

// run sends what it finds, until all is known or the context ends. The error says why
// nothing was found.
func (l *lookup) run(ctx context.Context) error {
	if a, err := netip.ParseAddr(l.host); err == nil {
		return l.send(ctx, []netip.Addr{a}, true)
	}
	type answer struct {
		network string
		all     []netip.Addr
		err     error
	}
	answers := make(chan answer)
	pending := 0
	asking, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		for range pending {
			<-answers
		}
	}()
	ask := func(network string) {
		pending++
		go func() {
			all, err := l.names.resolve(asking, network, l.host)
			if err == nil && len(all) == 0 {
				err = &net.DNSError{Err: "no addresses", Name: l.host, IsNotFound: true}
			}
			answers <- answer{network, all, err}
		}()
	}
	ask("ip")
	slow := time.NewTimer(familyDelay)
	defer slow.Stop()
	sent, failed := false, error(nil)
	for families := 2; families > 0; {
		select {
		case <-slow.C:
			ask("ip4")
			ask("ip6")
		case a := <-answers:
			pending--
			if a.network == "ip" {
				families = 0
			} else {
				families--
			}
			var missing *net.DNSError
			switch {
			case a.err == nil:
				if err := l.send(ctx, a.all, families == 0); err != nil {
					return err
				}
				sent = true
			case failed == nil, errors.As(failed, &missing) && missing.IsNotFound: // the other family may be there
				failed = a.err
			}
		}
	}
	if sent {
		return nil
	}
	return failed
}

// send sends addresses in the order in which to try them: the families alternate (RFC 8305,
// section 4), and addresses that have failed lately are last. whole says that they are all.
func (l *lookup) send(ctx context.Context, found []netip.Addr, whole bool) error {
	for i, a := range found {
		found[i] = a.Unmap()
	}
	found = l.names.past.sort(interleave(found), time.Now())
	all := make([]netip.AddrPort, len(found))
	for i, a := range found {
		all[i] = netip.AddrPortFrom(a, l.port)
	}
	if whole {
		close(l.whole)
	}
	select {
	case l.found <- all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
