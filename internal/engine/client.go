package engine

import (
	"net/netip"

	"clustermap/internal/queue"
)

// joinClient says who is behind an accepted connection, for the bounds over all peers. A
// socket's own connections to others, and those within the process, are each a client of
// their own: the application has chosen them.
func (p *Pipe) joinClient(peer *Peer) {
	if !p.Lasting && !p.Inproc() {
		p.socket.In.Join(&p.In, p.socket.clientKey(peer))
	}
}

// Client returns who is behind the connection, once it is established.
func (p *Peer) Client() *queue.Client { return p.pipe.In.Client() }

// clientKey returns what the connections of one client have in common: the key with which
// they were accepted, or the user, or the address, of IPv6 the network of 64 bits. A key
// does not count where every key is accepted, since it costs nothing to make one. All
// connections over ipc are one client.
func (s *Socket) clientKey(peer *Peer) string {
	if peer.info.PublicKey != [32]byte{} && peer.conn.config.Security.Authenticates() {
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
