package sockets

import (
	"iter"
	"net/netip"

	"clustermap/internal/queue"
)

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

// heaviest returns the holder that holds most, of the client that holds most: so who holds
// less than its share of a bound is not the one that gives way, whether the others have
// many connections or large ones. It returns the zero H if nothing is held.
func heaviest[H any](holders iter.Seq[H], held func(H) (*queue.Client, int)) (worst H) {
	sums := map[*queue.Client]int{}
	for h := range holders {
		c, bytes := held(h)
		sums[c] += bytes
	}
	sum, most := 0, 0
	for h := range holders {
		if c, bytes := held(h); bytes > 0 && (sums[c] > sum || sums[c] == sum && bytes > most) {
			worst, sum, most = h, sums[c], bytes
		}
	}
	return worst
}
