package sockets

import (
	"context"
	"maps"
	"slices"

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
	publisher
	queue queue.Inqueue // of all peers, because the order among them matters

	// Guarded by subs.
	last     *Peer // sender of the message received last, if manual
	manually bool  // Options.XPubManual
}

// NewXPub returns a new XPUB socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewXPub(o Options) (*XPub, error) {
	x := &XPub{}
	x.queue.Init(false)
	err := x.start(zmtp.TypeXPub, o, x)
	if err == nil {
		x.manually = x.opts().XPubManual
	}
	return made(x, err)
}

// changed makes the options take effect. When XPubManual is turned on, the peers keep
// their subscriptions, as if the application had applied them. When it is turned off,
// they keep those that it has applied.
func (x *XPub) changed(was, now *Options) {
	pipes := x.list()
	x.subs.Lock()
	turned := x.manually != now.XPubManual
	x.manually = now.XPubManual
	for _, q := range pipes {
		switch g := q.sub.group; {
		case !turned || g == nil:
		case x.manually:
			for topic := range g.topics {
				_ = x.subs.ask(q, []byte(topic), unbounded) // they are within the limits
			}
		default:
			x.subs.count(q, -occupied(len(q.sub.asked), q.sub.askedBytes))
			q.sub.asked, q.sub.askedBytes = nil, 0
		}
	}
	if !x.manually {
		x.last = nil
	}
	if !now.XPubManualLastValue {
		x.subs.only = nil
	}
	x.subs.Unlock()
	x.publisher.changed(was, now)
}

// Recv waits for a subscription, an unsubscription, or a message from an XSUB
// and returns it. The caller owns the message. Recv waits until the context is
// done or until Options.RecvTimeout has passed (ErrTimeout).
func (x *XPub) Recv(ctx context.Context) (Message, error) {
	m, _, err := x.RecvFrom(ctx)
	return m, err
}

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (x *XPub) TryRecv() (Message, error) { return x.Recv(queue.NoWait) }

// RecvBatch waits like Recv and fills b with messages of one peer, without
// copying them; see [Batch].
func (x *XPub) RecvBatch(ctx context.Context, b *Batch) error {
	err := x.recvBatch(ctx, b)
	if err == nil {
		x.received(b.Peer())
	}
	return err
}

// received records the sender of the message that the application has received
// last.
func (x *XPub) received(peer *Peer) {
	o := x.opts()
	if !o.XPubManual {
		return
	}
	x.subs.Lock()
	defer x.subs.Unlock()
	if !x.manually {
		return // since this moment
	}
	if peer.pipe.sub.peer != peer {
		peer = nil // gone
	}
	x.last = peer
	if o.XPubManualLastValue {
		x.subs.only = peer
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
	return x.manual(peer, func(q *pipe) {
		// The application's own subscriptions have no limit.
		_, _ = x.subs.subscribe(q, []byte(topic), unbounded)
	})
}

// UnsubscribePeer is like Unsubscribe for a given peer. See SubscribePeer.
func (x *XPub) UnsubscribePeer(peer *Peer, topic string) error {
	return x.manual(peer, func(q *pipe) { x.subs.cancel(q, []byte(topic)) })
}

// manual changes the subscriptions of a peer, or of the last one if it is nil.
func (x *XPub) manual(peer *Peer, change func(q *pipe)) error {
	if err := x.open(); err != nil {
		return err
	}
	x.subs.Lock()
	defer x.subs.Unlock()
	if !x.manually {
		return ErrNotManual
	}
	if peer == nil {
		peer = x.last
	}
	switch {
	case peer == nil:
		return ErrUnroutable // nothing was received yet
	case !x.owns(peer):
		return ErrForeignPeer
	case peer.pipe.sub.peer != peer:
		return ErrUnroutable
	}
	change(peer.pipe)
	return nil
}

func (x *XPub) traits() traits {
	return traits{ordered: true, subscribed: true, notices: &x.queue, maxMessage: maxMessage}
}

// obeyBurst is how many messages of a subscriber are processed before other
// goroutines can publish again.
const obeyBurst = 256

// messages applies subscriptions and unsubscriptions, and queues messages about them for
// the application. It holds the mutex so that both happen in the same order. If the
// application is behind, messages first waits for it: otherwise peers that connect,
// subscribe and disconnect would fill the queue without limit. Over inproc, half.Fetch
// does that check.
func (x *XPub) messages(q *pipe, peer *Peer, b *Batch) (bool, error) {
	for at := 0; at < b.Len(); {
		if !q.inproc() && !x.in.Settled(&x.queue, peer.conn.gone) {
			return false, nil // the reader will notice
		}
		end := min(at+obeyBurst, b.Len())
		size := 0
		for _, s := range b.q.Spans[at:end] {
			size += int(s.End - s.Start)
		}
		var n notices
		var err error
		x.subs.Lock()
		for ; at < end && err == nil; at++ {
			err = x.take(q, b.Message(at), &n, size)
		}
		n.put(&x.in, &x.queue, peer)
		x.subs.Unlock()
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// take processes one message. The frames of the application between two
// subscriptions form a message. The mutex must be held.
func (x *XPub) take(q *pipe, m zmtp.WireMessage, n *notices, size int) error {
	up := upstream{firstOnly: x.opts().OnlyFirstSubscribe}
	for len(m) > 0 {
		var body []byte
		body, m = m.Next()
		kind := up.kind(body)
		if kind == userFrame {
			n.begin(size)
			n.frame(body)
			continue
		}
		told, err := x.obey(q, kind, body[1:])
		if err != nil {
			return err
		}
		n.finish()
		if told {
			n.begin(size)
			n.subscription(body[0], body[1:])
		}
	}
	n.finish()
	return nil
}

// obey applies a subscription or unsubscription, or with XPubManual only
// records it, and reports whether the application receives it.
func (x *XPub) obey(q *pipe, kind frameKind, topic []byte) (told bool, err error) {
	o := x.opts()
	limit := o.MaxSubscriptions
	switch {
	case kind == subscribeFrame && len(topic) > o.MaxTopicSize:
		return false, ErrTooLarge
	case x.manually && kind == subscribeFrame:
		return true, x.subs.ask(q, topic, limit)
	case x.manually:
		x.subs.unask(q, topic)
		return true, nil
	case kind == subscribeFrame:
		first, err := x.subs.subscribe(q, topic, limit)
		return first || o.XPubVerbose, err
	}
	had, last := x.subs.cancel(q, topic)
	if !had {
		// libzmq always passes this on. But if other peers have the topic, a
		// forwarder would then end their subscription upstream.
		last = !x.subs.trie.Has(topic)
	}
	return last || o.XPubVerboser, nil
}

// ask records a subscription that a peer has asked for, within the same limits
// as for applied ones.
func (subs *subscriptions) ask(q *pipe, topic []byte, limit int) error {
	s := &q.sub
	if _, have := s.asked[string(topic)]; have {
		return nil
	}
	if len(s.asked) >= limit || s.askedBytes+len(topic) > maxTopicBytes {
		return ErrTooManySubscriptions
	}
	if err := subs.occupy(q, len(topic), limit); err != nil {
		return err
	}
	if s.asked == nil {
		s.asked = map[string]struct{}{}
	}
	s.asked[string(topic)] = struct{}{}
	s.askedBytes += len(topic)
	return nil
}

func (subs *subscriptions) unask(q *pipe, topic []byte) {
	s := &q.sub
	if _, have := s.asked[string(topic)]; have {
		subs.count(q, -occupied(1, len(topic)))
		delete(s.asked, string(topic))
		s.askedBytes -= len(topic)
	}
}

// detach queues an unsubscription, in sorted order, for each topic that no
// other peer has; with XPubVerboser or XPubManual for every topic of the peer.
func (x *XPub) detach(q *pipe, peer *Peer) {
	x.subs.Lock()
	x.subs.part(q)
	if x.last == peer {
		x.last = nil
	}
	manual := x.manually
	had := q.sub.asked
	if g := q.sub.group; g != nil && !manual {
		had = g.topics
	}
	topics := slices.Sorted(maps.Keys(had))
	x.subs.Unlock()

	for some := range slices.Chunk(topics, forgetBurst) {
		size := 0
		for _, topic := range some {
			size += zmtp.FrameSize(1 + len(topic))
		}
		var n notices
		x.subs.Lock()
		for _, topic := range some {
			told := manual
			if !told {
				_, last := x.subs.cancel(q, []byte(topic))
				told = last || x.opts().XPubVerboser
			}
			if told {
				n.begin(size)
				n.subscription(0, []byte(topic))
			}
		}
		n.put(&x.in, &x.queue, peer)
		x.subs.Unlock()
	}
	x.subs.forget(q)
}
