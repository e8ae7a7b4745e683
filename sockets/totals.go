package sockets

// Totals counts what a socket has sent and received since it was made, over all of its
// connections: those that have ended count on. Together with the numbers of [PeerStats] they
// are what package sockets/metrics shows.
type Totals struct {
	MessagesIn, BytesIn   uint64
	MessagesOut, BytesOut uint64 // without those of writes in progress
	Drops                 uint64 // messages dropped because a peer's queue was full, or the peer had disconnected
	Discarded             uint64 // messages received and discarded, for lack of a subscription or as unexpected

	Connections   uint64 // connections that were established, in both directions
	Reconnections uint64 // those of them that a Connect has made again
}

// Totals returns the totals of the socket. No number is ever lower than in a call before.
func (s *socket) Totals() Totals { return Totals(s.core.Totals()) }
