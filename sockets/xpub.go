package sockets

import (
	"clustermap/internal/engine"
	"clustermap/internal/fanout"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// XPub is an XPUB socket (RFC 29): a PUB that also receives the subscriptions
// of its peers. When the first peer subscribes to a topic, the socket receives
// a message of one frame: byte 1 followed by the topic. When the last peer with
// a topic unsubscribes or disconnects, it receives byte 0 followed by the
// topic. Options.XPubVerbose and XPubVerboser make it receive more of them.
// XSub.Send accepts these messages, so an XSUB and an XPUB together form a
// forwarder. An XPub also receives messages that applications send with an
// XSUB.
//
// Messages are received in the order in which they took effect. The application
// must receive them: when Options.RecvHWM of them are queued, the socket stops
// reading from all peers, and accepts no further subscriptions. Use a [Pub] if
// you do not need them.
//
// All methods are safe for concurrent use.
type XPub struct {
	receiving
	publisher
	queue queue.Inqueue // of all peers, because the order among them matters
}

// NewXPub returns a new XPUB socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewXPub(o Options) (*XPub, error) {
	x := &XPub{}
	x.queue.Init(false)
	x.taken = x.received
	as := engine.Pattern{Detach: x.detach, Messages: x.messages}
	as.Notices = &x.queue
	return made(x, x.start(&x.socket, zmtp.TypeXPub, o, as))
}

// received records the sender of the message that the application has received last.
func (x *XPub) received(peer *engine.Peer) {
	if x.opts().XPubManual {
		x.fan.Received(roleOf(peer))
	}
}

// Subscribe applies a subscription for the peer whose message was received
// last. It requires Options.XPubManual, with which the application chooses the
// subscriptions of its peers, regardless of their requests; otherwise the error
// is ErrNotManual. If that peer has disconnected, or no message has been
// received yet, the error is ErrUnroutable. If several goroutines receive, use
// SubscribePeer.
func (x *XPub) Subscribe(topic string) error { return x.SubscribePeer(nil, topic) }

// Unsubscribe removes a subscription of the peer whose message was received
// last. It does nothing if the peer has no such subscription. The errors are
// those of Subscribe.
func (x *XPub) Unsubscribe(topic string) error { return x.UnsubscribePeer(nil, topic) }

// SubscribePeer is like Subscribe for a given peer, such as the one returned by
// Batch.Peer or RecvFrom. If the peer belongs to another socket, the error is
// ErrForeignPeer. If it is nil, SubscribePeer uses the peer whose message was
// received last.
func (x *XPub) SubscribePeer(peer *Peer, topic string) error {
	return x.manual(peer, topic, x.fan.SubscribeFor)
}

// UnsubscribePeer is like Unsubscribe for a given peer. See SubscribePeer.
func (x *XPub) UnsubscribePeer(peer *Peer, topic string) error {
	return x.manual(peer, topic, x.fan.UnsubscribeFor)
}

// manual changes the subscriptions of a peer, or of the last one if it is nil.
func (x *XPub) manual(peer *Peer, topic string, change func(*fanout.Subscriber, string) error) error {
	if err := x.core.Open(); err != nil {
		return err
	}
	if !x.opts().XPubManual {
		return ErrNotManual
	}
	if peer == nil {
		return change(nil, topic)
	}
	if !x.owns(peer) {
		return ErrForeignPeer
	}
	if roleOf(peer.engine()) == nil {
		return ErrUnroutable
	}
	return change(roleOf(peer.engine()), topic)
}

// messages applies subscriptions and unsubscriptions, and queues messages about them for
// the application. It holds the mutex so that both happen in the same order. If the
// application is behind, messages first waits for it: otherwise peers that connect,
// subscribe and disconnect would fill the queue without limit. Over inproc, the engine does
// that before it calls messages (see Traits.Notices).
func (x *XPub) messages(q *engine.Pipe, peer *engine.Peer, b *engine.Batch) (bool, error) {
	for at := 0; at < b.Len(); {
		if !q.Inproc() && !x.core.In.Settled(&x.queue, peer.Gone()) {
			return false, nil // the reader will notice
		}
		end := min(at+subscriptionBurst, b.Len())
		size := 0
		for _, s := range b.Spans()[at:end] {
			size += int(s.End - s.Start)
		}
		var n engine.Notices
		var err error
		x.fan.Lock()
		for ; at < end && err == nil; at++ {
			err = x.take(peer, b.Message(at), &n, size)
		}
		n.Put(&x.core, &x.queue, peer)
		x.fan.Unlock()
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// take processes one message. The frames of the application between two
// subscriptions form a message. The mutex must be held.
func (x *XPub) take(peer *engine.Peer, m zmtp.WireMessage, n *engine.Notices, size int) error {
	frames := fanout.Frames{FirstOnly: x.opts().OnlyFirstSubscribe}
	for len(m) > 0 {
		var body []byte
		body, m = m.Next()
		kind := frames.Kind(body)
		if kind == fanout.UserFrame {
			n.Begin(size)
			n.Frame(body)
			continue
		}
		told, err := x.handle(peer, kind, body[1:])
		if err != nil {
			return err
		}
		n.Finish()
		if told {
			n.Begin(size)
			n.Subscription(body[0], body[1:])
		}
	}
	n.Finish()
	return nil
}

// detach queues an unsubscription for each topic of which the application is told.
func (x *XPub) detach(_ *engine.Pipe, peer *engine.Peer) {
	x.fan.Detach(roleOf(peer), func(topics []string) {
		size := 0
		for _, topic := range topics {
			size += zmtp.FrameSize(1 + len(topic))
		}
		var n engine.Notices
		for _, topic := range topics {
			n.Begin(size)
			n.Subscription(0, []byte(topic))
		}
		n.Put(&x.core, &x.queue, peer)
	})
}
