package sockets

import (
	"clustermap/internal/engine"
	"clustermap/internal/queue"
)

// Lookup tells whether the ROUTER has a peer with the given identity now, that
// is, whether Send can route a message to it (zmq_socket_get_peer_state). If not,
// the error is ErrUnroutable, or ErrClosed.
//
// events has PollOut if a message to the peer would be queued at once, and is 0
// if the peer's queue is full. peer is nil if the identity was given to
// ConnectAs and there is no connection at the moment: messages are then queued
// for the next one.
func (r *Router) Lookup(identity []byte) (peer *Peer, events PollEvents, err error) {
	if err := r.core.Open(); err != nil {
		return nil, 0, err
	}
	to := r.routes.Find(identity)
	if to.Pipe == nil {
		return nil, 0, ErrUnroutable
	}
	if to.Conn != nil {
		peer = (*Peer)(engine.PeerOf(to.Conn))
	} else {
		peer = (*Peer)(to.Pipe.Peer())
	}
	switch to.Pipe.Out.Would() {
	case queue.Ended:
		return nil, 0, ErrUnroutable // it is about to be removed
	case queue.Accepted:
		events = PollOut
	}
	return peer, events, nil
}
