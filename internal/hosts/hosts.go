// Package hosts says by which names a server over HTTP may be asked, and by which addresses its clients are
// counted.
package hosts

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Named reports whether the Host of a request is a name of this server: an IP address, localhost or
// one of names, of which "*" allows all. A browser that is on the same network as the server can
// be led to it by a page of somebody else, whose name its owner lets point to the server (DNS
// rebinding).
func Named(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return name == "*" || strings.EqualFold(name, host) })
}

// Of returns the address by which a peer is counted, with a port or without: of IPv6 the network of 64 bits, which has one owner. It is the
// zero Addr for one without an address, over a Unix socket for example.
func Of(remote string) netip.Addr {
	a, err := netip.ParseAddr(remote)
	if err != nil {
		at, _ := netip.ParseAddrPort(remote)
		a = at.Addr()
	}
	a = a.Unmap().WithZone("")
	if p, err := a.Prefix(64); err == nil && a.Is6() {
		return p.Addr()
	}
	return a
}
