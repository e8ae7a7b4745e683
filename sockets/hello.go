package sockets

import "clustermap/zmtp"

// Messages that are sent or received automatically when connections begin and end
// (ZMQ_HELLO_MSG, ZMQ_DISCONNECT_MSG, ZMQ_HICCUP_MSG), for the socket types that
// have them in libzmq.

// helloMessage returns the first message of a new connection in wire form, or
// nil.
func (s *socket) helloMessage() []byte {
	if len(s.opts.HelloMessage) == 0 || s.kind != zmtp.ROUTER && s.kind != zmtp.DEALER {
		return nil
	}
	return zmtp.AppendMessage(nil, s.opts.HelloMessage)
}

// speaksForPeers reports whether the application receives messages about a peer
// that the peer has not sent.
func (s *socket) speaksForPeers() bool {
	return s.kind == zmtp.ROUTER && (s.opts.Notify != 0 || len(s.opts.DisconnectMessage) > 0)
}

// tellEnd makes the application receive the message that reports the end of an
// established connection. It does not wait for room. For peers that will not
// connect again the memory is limited elsewhere (see leave); for the others,
// the message is dropped if there is no room.
func (s *socket) tellEnd(p *pipe, peer *Peer) {
	var message []byte
	switch {
	case s.kind == zmtp.ROUTER && !p.lasting:
		message = s.opts.DisconnectMessage
	case s.kind == zmtp.DEALER && p.lasting:
		message = s.opts.HiccupMessage
	}
	if len(message) == 0 {
		return
	}
	if p.lasting && s.in.isFull(&p.in) {
		peer.discarded.Add(1)
		return
	}
	var n notices
	n.begin(zmtp.FrameSize(len(message)))
	n.frame(message)
	n.put(&s.in, &p.in, peer)
}
