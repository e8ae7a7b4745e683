package majordomo

import (
	"maps"
	"strconv"

	"clustermap/sockets"
)

// Extensions of the RFCs are used only between peers that announced them in their
// handshake. docs/MAJORDOMO.md describes them.
const (
	// propertyMDP is announced by all sockets of this package. A client may send a
	// number before a request, which the broker returns with the reply. A broker
	// reports dropped requests to the client.
	propertyMDP = "X-MDP"
	valueMDP    = "clustermap/1"

	// propertyAhead is announced by a worker: the number of requests that it accepts
	// at a time, in decimal. It still handles them one by one, in order.
	propertyAhead = "X-MDP-Ahead"

	// propertyWelcome is announced by a broker that answers READY of a worker of this
	// package with HEARTBEAT if it accepts it. RFC 7 has no answer.
	propertyWelcome = "X-MDP-Welcome"

	// codeGiveBack is the code of a worker's command that gives back requests that
	// were sent ahead. Its one frame is their number in decimal, counted from the
	// request after the one being handled. The broker passes them to other workers.
	codeGiveBack = 0x20

	// serviceList is a service of the broker: see Client.Services. It replies 501 to
	// all other unknown names with the prefix "mmi." (RFC 8).
	serviceList = "mmi.x-services"
)

// isOurs reports whether a peer is of this package.
func isOurs(p *sockets.Peer) bool {
	_, ok := p.Property(propertyMDP)
	return ok
}

// aheadOf returns the number of requests that a worker accepts at a time.
func aheadOf(p *sockets.Peer) int {
	text, _ := p.Property(propertyAhead)
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || !isOurs(p) {
		return 1
	}
	return int(min(n, maxAhead))
}

// announce adds properties to those of a socket.
func announce(o *sockets.Options, properties map[string]string) {
	all := map[string]string{propertyMDP: valueMDP}
	maps.Copy(all, o.Metadata)
	maps.Copy(all, properties)
	o.Metadata = all
}
