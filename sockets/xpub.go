package sockets

import (
	"context"
	"maps"
	"slices"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// XPub is an XPUB socket (RFC 29): a PUB that tells the application what peers
// subscribe to. It receives a message of one frame, byte 1 and the topic, when
// somebody is the first to subscribe to a topic, and byte 0 and the topic when
// nobody has it any more, also because the last one who had it is gone; with
// Options.XPubVerbose and XPubVerboser more than that. In this form XSub.Send
// takes them, so that the two together are a forwarder. Messages that an XSUB's
// application sends are received as well: RFC 29 has messages upstream.
//
// Received messages come in the order in which they took effect, and Recv is to
// be called: when Options.RecvHWM of them wait, no further subscriptions are
// taken from anyone. Who has no use for them takes a [Pub].
//
// All methods are safe for concurrent use.
type XPub struct {
	publisher
	queue inqueue // of all peers, since their order counts
	last  *Peer   // who sent what was received last, guarded by subs; with Options.XPubManual only
}

// NewXPub makes an XPUB socket. It returns all faults of the options as one
// error.
func NewXPub(o Options) (*XPub, error) {
	x := &XPub{}
	if err := x.init(zmtp.XPUB, o, (*xpubPattern)(x)); err != nil {
		return nil, err
	}
	x.subs.invert = x.opts.InvertMatching
	x.queue.init()
	return x, nil
}

// Recv waits for a subscription, the end of one, or a message from an XSUB,
// until the context ends or for Options.RecvTimeout (ErrTimeout), and returns
// it. The caller owns it.
func (x *XPub) Recv(ctx context.Context) (Message, error) {
	m, _, err := x.RecvFrom(ctx)
	return m, err
}

// TryRecv is Recv without waiting: if there is nothing, it returns
// ErrWouldBlock.
func (x *XPub) TryRecv() (Message, error) { return x.Recv(queue.NoWait) }

// RecvBatch waits for such messages and lends those that one peer sent
// together: see [Batch].
func (x *XPub) RecvBatch(ctx context.Context, b *Batch) error {
	err := x.in.recvBatch(ctx, b)
	if err == nil {
		x.received(b.Peer())
	}
	return err
}

// received notes whose message the application has received last.
func (x *XPub) received(peer *Peer) {
	if !x.opts.XPubManual {
		return
	}
	x.subs.Lock()
	defer x.subs.Unlock()
	if peer.pipe.sub.peer != peer {
		peer = nil // gone
	}
	x.last = peer
	if x.opts.XPubManualLastValue {
		x.subs.only = peer
	}
}

// Subscribe puts a subscription in force for the peer whose message was
// received last: with Options.XPubManual, topics are those that the application
// gives to peers, whatever they asked for. It returns ErrUnroutable if that peer
// has disconnected or nothing was received yet, and ErrNotManual without that
// option. Where several goroutines receive, SubscribePeer is the way.
func (x *XPub) Subscribe(topic string) error { return x.SubscribePeer(nil, topic) }

// Unsubscribe takes a subscription of the peer whose message was received last
// out of force, and otherwise does as Subscribe. A topic that is not in force
// is ignored.
func (x *XPub) Unsubscribe(topic string) error { return x.UnsubscribePeer(nil, topic) }

// SubscribePeer is Subscribe for a peer as Batch.Peer told it. A peer of another
// socket is refused with ErrForeignPeer; nil means the peer whose message was
// received last.
func (x *XPub) SubscribePeer(peer *Peer, topic string) error {
	return x.manual(peer, func(q *pipe) {
		// The application's own subscriptions have no limit.
		_, _ = x.subs.subscribe(q, []byte(topic), unbounded)
	})
}

// UnsubscribePeer is Unsubscribe for a peer as Batch.Peer told it.
func (x *XPub) UnsubscribePeer(peer *Peer, topic string) error {
	return x.manual(peer, func(q *pipe) { x.subs.cancel(q, []byte(topic)) })
}

// manual changes the subscriptions of a peer, or of the last one.
func (x *XPub) manual(peer *Peer, change func(q *pipe)) error {
	if err := x.open(); err != nil {
		return err
	}
	if !x.opts.XPubManual {
		return ErrNotManual
	}
	x.subs.Lock()
	defer x.subs.Unlock()
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

// xpubPattern is XPub as the engine sees it.
type xpubPattern XPub

func (x *xpubPattern) added(*pipe)   {}
func (x *xpubPattern) removed(*pipe) {}
func (x *xpubPattern) roomy(*pipe)   {}

func (x *xpubPattern) attach(q *pipe, peer *Peer) error {
	return (*pubPattern)(&x.publisher).attach(q, peer)
}

func (x *xpubPattern) traits() traits {
	return traits{ordered: true, subscribed: true, notices: &x.queue, maxMessage: maxMessage}
}

func (x *xpubPattern) command(*pipe, *Peer, string, []byte) error { return nil }

// obeyBurst is how many messages of a subscriber are taken before publishing
// goes on.
const obeyBurst = 256

// messages takes subscriptions and their ends, and queues what the application
// is to know, in the same order, for which the mutex is held. Before, it waits
// for the application if that is behind: otherwise peers that connect,
// subscribe and leave would fill the queue without end. Over inproc half.fetch looks at that.
func (x *xpubPattern) messages(q *pipe, peer *Peer, b *Batch) (bool, error) {
	for at := 0; at < b.Len(); {
		if !q.inproc() && !x.in.settle(&x.queue, peer.conn.gone) {
			return false, nil // the reader will see
		}
		end := min(at+obeyBurst, b.Len())
		size := 0
		for _, s := range b.spans[at:end] {
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

// take takes one message. Of the application's own frames, those between two
// subscriptions are a message. The mutex must be held.
func (x *xpubPattern) take(q *pipe, m zmtp.Message, n *notices, size int) error {
	up := upstream{firstOnly: x.opts.OnlyFirstSubscribe}
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

// obey puts a subscription or its end in force, or with XPubManual notes it,
// and reports whether the application is to know.
func (x *xpubPattern) obey(q *pipe, kind frameKind, topic []byte) (told bool, err error) {
	limit := x.opts.MaxSubscriptions
	switch {
	case x.opts.XPubManual && kind == subscribeFrame:
		return true, q.sub.ask(topic, limit)
	case x.opts.XPubManual:
		q.sub.unask(topic)
		return true, nil
	case kind == subscribeFrame:
		first, err := x.subs.subscribe(q, topic, limit)
		return first || x.opts.XPubVerbose, err
	}
	had, last := x.subs.cancel(q, topic)
	if !had {
		// libzmq tells of it in any case. But where others have the topic, a
		// forwarder would end their subscription upstream.
		last = !x.subs.trie.Has(topic)
	}
	return last || x.opts.XPubVerboser, nil
}

// ask notes what a peer has subscribed to, within the same bounds as what is in
// force elsewhere.
func (s *subscriber) ask(topic []byte, limit int) error {
	if _, have := s.asked[string(topic)]; have {
		return nil
	}
	if len(s.asked) >= limit || s.askedBytes+len(topic) > maxTopicBytes {
		return ErrTooManySubscriptions
	}
	if s.asked == nil {
		s.asked = map[string]struct{}{}
	}
	s.asked[string(topic)] = struct{}{}
	s.askedBytes += len(topic)
	return nil
}

func (s *subscriber) unask(topic []byte) {
	if _, have := s.asked[string(topic)]; have {
		delete(s.asked, string(topic))
		s.askedBytes -= len(topic)
	}
}

// detach tells of the topics that nobody has any more, in the order of their
// bytes; with XPubVerboser or XPubManual of all that the peer had.
func (x *xpubPattern) detach(q *pipe, peer *Peer) {
	x.subs.Lock()
	x.subs.part(q)
	if x.last == peer {
		x.last = nil
	}
	had := q.sub.asked
	if g := q.sub.group; g != nil && !x.opts.XPubManual {
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
			told := x.opts.XPubManual
			if !told {
				_, last := x.subs.cancel(q, []byte(topic))
				told = last || x.opts.XPubVerboser
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
