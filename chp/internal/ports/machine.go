package ports

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	netlink "clustermap/internal/link"
)

// Lead reports whether connecting to an endpoint on this machine reaches the bound one, as
// far as can be told without a resolver.
func Lead(connect, bound string) bool {
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
		return ip != nil && isLocal(ip)
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
	host, _, _ = strings.Cut(host, "%") // the zone of an IPv6 address
	return net.ParseIP(host)
}

// remoteIP returns the address of a network address with a port, or nil.
func remoteIP(remote string) net.IP {
	host, _, err := net.SplitHostPort(remote)
	if err != nil || host == "localhost" {
		return nil
	}
	return addressOf(host)
}

// SameHost reports whether two network addresses, with ports, are of one machine.
func SameHost(a, b string) bool {
	ip := remoteIP(a)
	return ip != nil && ip.Equal(remoteIP(b))
}

// Local reports whether a network address, with a port, is one of this machine.
func Local(remote string) bool {
	ip := remoteIP(remote)
	return ip != nil && isLocal(ip)
}

// isLocal reports whether an address belongs to this machine.
func isLocal(ip net.IP) bool {
	if ip.IsLoopback() {
		return true
	}
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
