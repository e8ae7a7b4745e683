package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// XSub is an XSUB socket (RFC 29): a SUB whose application can also send, to
// every publisher it is connected to. What is sent is received at an XPUB; a PUB
// has no use for it. A frame of byte 1 and a topic subscribes, and one of byte
// 0 and a topic unsubscribes, like Subscribe and Unsubscribe: it is what
// XPub.Recv returns, so that the two together are a forwarder.
//
// Other than a [Sub] it receives whatever publishers send, subscribed to or not.
//
// All methods are safe for concurrent use.
type XSub struct{ subscribing }

// NewXSub makes an XSUB socket. It returns all faults of the options as one
// error.
func NewXSub(o Options) (*XSub, error) {
	s := &XSub{}
	s.topics.init()
	s.topics.pipes = map[*pipe]struct{}{}
	if err := s.init(zmtp.XSUB, o, (*subPattern)(&s.subscribing)); err != nil {
		return nil, err
	}
	return s, nil
}

// TrySend is Send, which never waits.
func (s *XSub) TrySend(frames ...[]byte) error { return s.Send(queue.NoWait, frames...) }

// Send sends a message to all publishers. It copies the frames, and never waits.
//
// Frames that begin with byte 1 or 0 subscribe and unsubscribe: see
// Options.OnlyFirstSubscribe. Every subscription is sent, also to a topic that
// is subscribed to already; an end of one only if it is the last to its topic
// (see Options.XSubVerboseUnsubscribe). They are sent again after a
// reconnection. A topic over 32 KiB is ErrTooLarge.
//
// A message without them is the application's own. It is dropped for a
// publisher whose queue is full; one to which the first connection is not up
// yet will get it.
func (s *XSub) Send(ctx context.Context, frames ...[]byte) error {
	if err := s.check(frames); err != nil {
		return err
	}
	up := upstream{firstOnly: s.opts.OnlyFirstSubscribe}
	subscriptions := 0
	for _, f := range frames {
		if up.kind(f) != userFrame {
			if len(f)-1 > maxTopic {
				return ErrTooLarge
			}
			subscriptions++
		}
	}
	t := &s.topics
	t.Lock()
	defer t.unlock()
	if subscriptions == 0 {
		for p := range t.pipes {
			if p.out.offer(nil, frames) == isFull {
				p.out.countDrops(1)
			}
		}
		return nil
	}
	up = upstream{firstOnly: s.opts.OnlyFirstSubscribe}
	sent := make([][]byte, 0, len(frames))
	for _, f := range frames {
		switch up.kind(f) {
		case subscribeFrame:
			t.add(string(f[1:]))
		case cancelFrame:
			if !t.drop(string(f[1:])) && !s.verbose() {
				continue
			}
		}
		sent = append(sent, f)
	}
	if len(sent) == 0 {
		return nil
	}
	wire := zmtp.AppendMessage(nil, sent...)
	for peer := range t.peers {
		peer.request(wire)
	}
	return nil
}
