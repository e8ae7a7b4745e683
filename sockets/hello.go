package sockets

import "clustermap/zmtp"

// Messages that are sent or received automatically when connections begin and end
// (ZMQ_HELLO_MSG, ZMQ_DISCONNECT_MSG, ZMQ_HICCUP_MSG), for the socket types that
// have them in libzmq.

// helloMessage returns the first message of a new connection in wire form, or
// nil.
func (s *socket) helloMessage(o *Options) []byte {
	if len(o.HelloMessage) == 0 || s.kind != zmtp.TypeRouter && s.kind != zmtp.TypeDealer {
		return nil
	}
	return zmtp.AppendMessage(nil, o.HelloMessage)
}

// speaksForPeers reports whether the application receives messages about a peer
// that the peer has not sent.
func (s *socket) speaksForPeers(o *Options) bool {
	switch s.kind {
	case zmtp.TypeRouter:
		return o.Notify&notifyBoth != 0 || len(o.DisconnectMessage) > 0
	case zmtp.TypeStream:
		return o.Notify&notifyBoth != 0
	}
	return false
}

// tellEnd makes the application receive the message that reports the end of an
// established connection. It does not wait for room. For peers that will not
// connect again the memory is limited elsewhere (see leave); for the others,
// the message is dropped if there is no room.
func (s *socket) tellEnd(p *pipe, peer *Peer) {
	var message []byte
	switch {
	case s.kind == zmtp.TypeRouter && !p.lasting:
		message = peer.conn.opts.DisconnectMessage
	case s.kind == zmtp.TypeDealer && p.lasting:
		message = peer.conn.opts.HiccupMessage
	}
	if len(message) == 0 {
		return
	}
	if _, full, _ := s.in.Look(&p.in); p.lasting && full {
		peer.conduit.Discard(1)
		return
	}
	var n notices
	n.begin(zmtp.FrameSize(len(message)))
	n.frame(message)
	n.put(&s.in, &p.in, peer)
}
