package sockets

import "clustermap/zmtp"

// Messages that come by themselves when connections begin and end (ZMQ_HELLO_MSG,
// ZMQ_DISCONNECT_MSG, ZMQ_HICCUP_MSG), for the types that have them in libzmq.

// helloMessage is what goes first on a new connection, in wire form.
func (s *socket) helloMessage() []byte {
	if len(s.opts.HelloMessage) == 0 || s.kind != zmtp.ROUTER && s.kind != zmtp.DEALER {
		return nil
	}
	return zmtp.AppendMessage(nil, s.opts.HelloMessage)
}

// hello writes the hello message. It is not queued: one that was not written is
// not for the next connection, which has its own. It reports false when the
// connection has ended.
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

// speaksForPeers says that messages are queued for the application which a peer did
// not send.
func (s *socket) speaksForPeers() bool {
	return s.kind == zmtp.ROUTER && (s.opts.Notify != 0 || len(s.opts.DisconnectMessage) > 0)
}

// tellEnd has the application receive the message that says that an established
// connection has ended. It does not wait for room: what is left of peers that do not
// come again is bounded elsewhere (see leave), and of one that does, it is dropped
// where there is none.
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
