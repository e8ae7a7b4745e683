package sockets

// SendWireTo queues messages for one peer, such as the one returned by
// Batch.Peer, regardless of its subscriptions. A publisher can use it to send a
// new subscriber the messages that it has missed. wire holds the given number of complete
// messages in ZMTP 3 framing, one after another. The peer receives them in order with all
// other messages sent to it.
//
// SendWireTo never waits and drops nothing. It ignores the peer's high-water
// marks, but the messages count towards them, and towards
// Options.SendTotalBytes, for later sends. So a caller may hold a lock of its
// own, and must itself limit the bytes that are in progress.
//
// If owner is nil, SendWireTo copies wire. Otherwise it keeps a reference to
// it, however short it is: it calls owner.Retain, the bytes must not change,
// and the socket calls owner.Release when it has written them or the connection
// has ended.
//
// If the peer has disconnected, or is about to be disconnected because it is
// too slow, the error is ErrUnroutable. If it is nil or belongs to another
// socket, the error is ErrForeignPeer.
//
// It is part of the advanced interface; see the package documentation.
func (x *XPub) SendWireTo(peer *Peer, wire []byte, messages int, owner Owner) error {
	if err := x.core.Open(); err != nil {
		return err
	}
	if !x.owns(peer) {
		return ErrForeignPeer
	}
	q := roleOf(peer.engine())
	if q == nil || !x.fan.SendTo(q, peer.engine().Conn(), wire, messages, owner) {
		return ErrUnroutable
	}
	return nil
}
