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

// hello writes the hello message. The message is not queued: if it is not
// written, it must not be sent on the next connection, which has its own. hello
// reports false if the connection has ended.
func (w *writer) hello() bool {
	w.control = append(w.control, w.pipe.socket.helloMessage()...)
	if len(w.control) == 0 {
		return true
	}
	if !w.send() {
		return false
	}
	w.release()
	w.peer.messagesOut.Add(1)
	return true
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
