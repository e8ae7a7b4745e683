package sockets

import "net/netip"

// joinClient says who is behind an accepted connection, for the bounds over all peers. A
// socket's own connections to others, and those within the process, are each a client of
// their own: the application has chosen them.
func (p *pipe) joinClient(peer *Peer) {
	if !p.lasting && !p.inproc() {
		p.socket.in.Join(&p.in, p.socket.clientKey(peer))
	}
}

// clientKey returns what the connections of one client have in common: the key with which
// they were accepted, or the user, or the address, of IPv6 the network of 64 bits. A key
// does not count where every key is accepted, since it costs nothing to make one. All
// connections over ipc are one client.
func (s *socket) clientKey(peer *Peer) string {
	sec := &peer.conn.opts.Security
	if judged := sec.Authenticate != nil || s.zapHandler(sec) != nil; judged && peer.info.PublicKey != [32]byte{} {
		return "key " + string(peer.info.PublicKey[:])
	}
	if peer.info.UserID != "" {
		return "user " + peer.info.UserID
	}
	at, err := netip.ParseAddrPort(peer.remote)
	if err != nil {
		return ""
	}
	a := at.Addr().Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(64)
		a = network.Addr()
	}
	return a.String()
}
