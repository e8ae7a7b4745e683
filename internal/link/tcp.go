package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// parseTCP reads host:port, or source;host:port.
func parseTCP(e *Endpoint, text string, bind bool) (wrong string, cause error) {
	if source, rest, ok := strings.Cut(text, ";"); ok {
		if bind {
			return "has a source address, which is for Connect", nil
		}
		e.source = &Endpoint{Text: e.Text, Scheme: TCP}
		if wrong, cause := parseTCP(e.source, source, true); wrong != "" {
			return "source " + wrong, cause
		}
		text = rest
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "has no port; write it as tcp://host:port", nil
	}
	host, port := text[:colon], text[colon+1:]
	if strings.HasPrefix(host, "[") {
		if !strings.HasSuffix(host, "]") {
			return "has an unclosed [ in its host", nil
		}
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		// As libzmq does: what follows the last colon is the port.
		if _, err := netip.ParseAddr(host); err != nil {
			return "has a host with a colon that is not an IPv6 address, such as tcp://[::1]:5555", nil
		}
	}
	switch {
	case host == "":
		return "has no host", nil
	case host == "*" && !bind:
		return "has the wildcard host, which is for Bind; name a host to connect to", nil
	case host == "*":
		host = ""
	case strings.ContainsFunc(host, notOfHost):
		return "has a character in its host that cannot be there", nil
	}
	e.host = host
	if port == "*" && bind {
		return "", nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "has no port from 1 to 65535", nil
	}
	if n == 0 && !bind {
		return "has port 0, which is for Bind; name a port to connect to", nil
	}
	e.port = int(n)
	return "", nil
}

// notOfHost tells characters that are in no host name, address with a zone, or
// name of an interface.
func notOfHost(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return false
	}
	return !strings.ContainsRune(".-_:%", c)
}

// listenTCP binds a tcp endpoint.
func listenTCP(ctx context.Context, e Endpoint, o *Options) (*Listener, error) {
	if host, ok := interfaceAddress(e.host); ok {
		e.host = host
	}
	network := "tcp"
	if e.host == "" && !o.IPv6 {
		e.host = "0.0.0.0"
	}
	if ip, err := netip.ParseAddr(e.host); err == nil && ip.Is4() {
		network = "tcp4" // else 0.0.0.0 would mean IPv6 as well
	}
	lc := net.ListenConfig{Control: o.control}
	lc.KeepAlive, lc.KeepAliveConfig = o.KeepAlive, o.KeepAliveConfig
	lc.SetMultipathTCP(false) // plain TCP, whatever the system prefers
	nl, err := lc.Listen(ctx, network, e.address())
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(nl.Addr().String())
	return &Listener{Listener: nl, Endpoint: e.Scheme + "://" + net.JoinHostPort(host, port)}, nil
}

// dialTCP connects to a tcp endpoint, by way of the proxy if there is one.
func dialTCP(ctx context.Context, e Endpoint, o *Options) (net.Conn, error) {
	d := net.Dialer{Control: o.control, KeepAlive: o.KeepAlive, KeepAliveConfig: o.KeepAliveConfig}
	if e.source != nil {
		local, err := e.source.local(ctx)
		if err != nil {
			return nil, err
		}
		d.LocalAddr = local
		d.Control = o.controlSource
	}
	if o.Proxy != "" {
		return dialProxy(ctx, &d, e, o)
	}
	nc, err := d.DialContext(ctx, "tcp", e.address())
	if err == nil && isSelf(nc) {
		nc.Close()
		return nil, ErrSelf
	}
	return nc, err
}

// ErrSelf says that a connection was made to its own port.
var ErrSelf = errors.New("sockets: connected to itself")

// local resolves the address to connect from.
func (e *Endpoint) local(ctx context.Context) (*net.TCPAddr, error) {
	a := &net.TCPAddr{Port: e.port}
	host := e.host
	if host == "" {
		return a, nil
	}
	if address, ok := interfaceAddress(host); ok {
		host = address
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i, ip := range found {
		if ip = ip.Unmap(); i == 0 || ip.Is4() && a.IP.To4() == nil {
			a.IP, a.Zone = ip.AsSlice(), ip.Zone()
		}
	}
	return a, nil
}

// interfaceAddress returns the first address, IPv4 if there is one, of the
// network interface with the given name.
func interfaceAddress(name string) (string, bool) {
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return "", false
	}
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return "", false
	}
	addrs, _ := ifc.Addrs()
	other := ""
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil:
		case p.Addr().Is4():
			return p.Addr().String(), true
		case other == "" && p.Addr().IsLinkLocalUnicast():
			other = p.Addr().WithZone(name).String()
		case other == "":
			other = p.Addr().String()
		}
	}
	return other, other != ""
}

// isSelf recognises a connection to its own port, which TCP makes when the
// port dialled happens to be chosen as the local one.
func isSelf(nc net.Conn) bool {
	return nc.LocalAddr().String() == nc.RemoteAddr().String()
}
