package chp

import (
	"cmp"
	"net"
	"strconv"

	netlink "clustermap/internal/link"
	"clustermap/internal/option"
)

// checkSelf returns an error for each endpoint of the other server that is one of this
// server's own. It does not resolve names. A server that hears itself all the same logs
// that (see pair.warnRole).
func (o *ServerOptions) checkSelf() (errs []error) {
	p := o.Pair
	own := []string{p.State}
	for _, b := range o.sites() {
		for n := 0; n < 3 && !b.open(); n++ {
			own = append(own, b.at(n))
		}
	}
	for _, f := range []struct{ name, value string }{{"Peer", p.Peer}, {"PeerState", p.PeerState}} {
		for _, bound := range own {
			if leadsTo(f.value, bound) {
				errs = append(errs, option.New("chp", "Pair."+f.name, "%q is this server's own endpoint %s, not the other server's", f.value, bound))
				break
			}
		}
	}
	return errs
}

// leadsTo reports whether connecting to an endpoint on this machine reaches the bound
// one, as far as can be told without a resolver.
func leadsTo(connect, bound string) bool {
	if connect == bound {
		return true
	}
	host, port, ok := splitTCP(connect)
	at, boundPort, bok := splitTCP(bound)
	if !ok || !bok || port != boundPort || port == "0" {
		return false
	}
	ip := addressOf(host)
	switch at {
	case host:
		return true
	case "*", "0.0.0.0", "::":
		return ip != nil && (ip.IsLoopback() || isLocal(ip))
	}
	return ip != nil && ip.Equal(addressOf(at))
}

// splitTCP returns host and port of a TCP endpoint.
func splitTCP(endpoint string) (host, port string, ok bool) {
	e, err := netlink.Parse(endpoint, true)
	return cmp.Or(e.Host(), "*"), strconv.Itoa(e.Port()), err == nil && e.Scheme == netlink.TCP
}

// addressOf returns the address of a host without resolving names, or nil.
func addressOf(host string) net.IP {
	if host == "localhost" {
		return net.IPv4(127, 0, 0, 1)
	}
	return net.ParseIP(zoneless(host))
}

// isLocal reports whether an address belongs to this machine.
func isLocal(ip net.IP) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}
