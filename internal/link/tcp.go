package link

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// parseTCP parses host:port, or source;host:port.
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
	}
	if strings.Contains(host, ":") {
		// In a URI the zone follows %25 (RFC 6874). 25 with more digits is the number of an interface.
		if address, zone, ok := strings.Cut(host, "%25"); ok && strings.Trim(zone, "0123456789") != "" {
			host = address + "%" + zone
		}
		// As in libzmq, the port follows the last colon.
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
		return "has an invalid character in its host", nil
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

// notOfHost reports whether c cannot occur in a host name, an address with a zone,
// or the name of a network interface.
func notOfHost(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return false
	}
	return !strings.ContainsRune(".-_:%", c)
}

// listenTCP binds a tcp endpoint.
func listenTCP(ctx context.Context, e Endpoint, o *Options) (*Listener, error) {
	e.host = cmp.Or(interfaceAddress(e.host), e.host)
	network := "tcp"
	if e.host == "" && !o.IPv6 {
		e.host = "0.0.0.0"
	}
	if ip, err := netip.ParseAddr(e.host); err == nil && ip.Is4() {
		network = "tcp4" // with "tcp", 0.0.0.0 would include IPv6
	}
	listen := o.listenWith
	if o.ListenWith == nil {
		lc := net.ListenConfig{Control: o.control}
		lc.KeepAlive, lc.KeepAliveConfig = o.KeepAlive, o.KeepAliveConfig
		lc.SetMultipathTCP(false) // plain TCP, even if the system prefers Multipath TCP
		listen = lc.Listen
	}
	nl, err := listen(ctx, network, e.address())
	if err != nil {
		return nil, err
	}
	l := &Listener{Listener: nl, Endpoint: e.Text}
	if a, ok := nl.Addr().(*net.TCPAddr); ok { // another listener may have another kind of address
		host, port, _ := net.SplitHostPort(a.String())
		l.Endpoint = e.Scheme + "://" + net.JoinHostPort(host, port)
	}
	return l, nil
}

// dialTCP connects to a tcp endpoint, directly or through the proxy.
func dialTCP(ctx context.Context, e Endpoint, o *Options) (net.Conn, error) {
	d := net.Dialer{Control: o.control, KeepAlive: o.KeepAlive, KeepAliveConfig: o.KeepAliveConfig}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return system.dial(ctx, d.DialContext, network, address)
	}
	if o.DialWith != nil {
		dial = o.dialWith
	} else if e.source != nil {
		local, err := e.source.local(ctx)
		if err != nil {
			return nil, err
		}
		d.LocalAddr = local
		d.Control = o.controlSource
	}
	if o.Proxy != "" {
		return dialProxy(ctx, dial, e, o)
	}
	nc, err := dial(ctx, "tcp", e.address())
	// TCP connects a port to itself if the system chooses the port to dial as the
	// local port.
	if tc, ok := nc.(*net.TCPConn); ok && err == nil && tc.LocalAddr().String() == tc.RemoteAddr().String() {
		nc.Close()
		return nil, ErrSelf
	}
	return nc, err
}

// ErrSelf means that a connection is connected to itself.
var ErrSelf = errors.New("sockets: connected to itself")

// local resolves the address to connect from.
func (e *Endpoint) local(ctx context.Context) (*net.TCPAddr, error) {
	a := &net.TCPAddr{Port: e.port}
	if e.host == "" {
		return a, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", cmp.Or(interfaceAddress(e.host), e.host))
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

// interfaceAddress returns the first IPv4 address of the network interface with
// the given name, or else its first IPv6 address, or "" if it has none.
func interfaceAddress(name string) string {
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return ""
	}
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return ""
	}
	addrs, _ := ifc.Addrs()
	other := ""
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil:
		case p.Addr().Is4():
			return p.Addr().String()
		case other == "" && p.Addr().IsLinkLocalUnicast():
			other = p.Addr().WithZone(name).String()
		case other == "":
			other = p.Addr().String()
		}
	}
	return other
}
