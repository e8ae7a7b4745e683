package majordomo

import (
	"strconv"

	"clustermap/sockets"
)

// What goes beyond the RFCs is used only between peers that announced it in their
// handshake, so others never meet it. docs/MAJORDOMO.md describes it.
const (
	// propertyMDP is announced by all sockets of this package. A client may put a
	// number in front of its requests, which a broker returns with the reply. A
	// broker tells a client of requests that it drops.
	propertyMDP = "X-MDP"
	valueMDP    = "clustermap/1"

	// propertyAhead is announced by a worker: how many requests it takes at a time,
	// in decimal. It still handles them one by one, in their order.
	propertyAhead = "X-MDP-Ahead"

	// codeGiveBack is the code of a worker's command that gives requests back which
	// were sent ahead and which it has not begun. Its one frame is their number, in
	// decimal: so many of those that follow the one being handled. The broker has
	// them done by others.
	codeGiveBack = 0x20

	// serviceList is a service of the broker's own: see Client.Services. RFC 8 has
	// other names beginning with "mmi." answered by 501; so has this broker, for all
	// but this one, which begins with "mmi.x-" as names of extensions do.
	serviceList = "mmi.x-services"
)

// maxAhead bounds what a worker may ask to be sent ahead.
const maxAhead = 1024

// isOurs says that a peer is of this package.
func isOurs(p *sockets.Peer) bool { return p != nil && p.Property(propertyMDP) != "" }

// aheadOf returns how many requests a worker takes at a time.
func aheadOf(p *sockets.Peer) int {
	n, err := strconv.ParseUint(p.Property(propertyAhead), 10, 16)
	if err != nil || n == 0 || !isOurs(p) {
		return 1
	}
	return int(min(n, maxAhead))
}

// announce adds properties to those of a socket.
func announce(o *sockets.Options, properties map[string]string) {
	all := map[string]string{propertyMDP: valueMDP}
	for name, value := range o.Metadata {
		all[name] = value
	}
	for name, value := range properties {
		all[name] = value
	}
	o.Metadata = all
}
