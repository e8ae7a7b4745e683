package sockets

import (
	"context"
	"net"
	"net/netip"
)

// listenTCP binds a tcp endpoint and returns it resolved.
func (s *socket) listenTCP(ctx context.Context, e endpoint) (net.Listener, string, error) {
	if host, ok := interfaceAddress(e.host); ok {
		e.host = host
	}
	network := "tcp"
	if e.host == "" && !s.opts.IPv6 {
		e.host = "0.0.0.0"
	}
	if ip, err := netip.ParseAddr(e.host); err == nil && ip.Is4() {
		network = "tcp4" // else 0.0.0.0 would mean IPv6 as well
	}
	lc := net.ListenConfig{Control: s.controlTCP}
	lc.KeepAlive, lc.KeepAliveConfig = s.keepAlive()
	lc.SetMultipathTCP(false) // plain TCP, whatever the system prefers
	nl, err := lc.Listen(ctx, network, e.address())
	if err != nil {
		return nil, "", err
	}
	host, port, _ := net.SplitHostPort(nl.Addr().String())
	return nl, transportTCP + "://" + net.JoinHostPort(host, port), nil
}

// dialTCP connects to a tcp endpoint, by way of the proxy if there is one.
func (s *socket) dialTCP(ctx context.Context, e endpoint) (net.Conn, error) {
	d := net.Dialer{Control: s.controlTCP}
	d.KeepAlive, d.KeepAliveConfig = s.keepAlive()
	if e.source != nil {
		local, err := e.source.local(ctx)
		if err != nil {
			return nil, err
		}
		d.LocalAddr = local
		d.Control = s.controlSource
	}
	if s.opts.SOCKSProxy == "" {
		return d.DialContext(ctx, transportTCP, e.address())
	}
	nc, err := d.DialContext(ctx, transportTCP, s.opts.SOCKSProxy)
	if err != nil {
		return nil, &ProxyError{Proxy: s.opts.SOCKSProxy, Err: err}
	}
	if err := s.askProxy(ctx, nc, e); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// local resolves the address to connect from.
func (e *endpoint) local(ctx context.Context) (*net.TCPAddr, error) {
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
	_, ok := nc.(*net.TCPConn)
	return ok && nc.LocalAddr().String() == nc.RemoteAddr().String()
}
