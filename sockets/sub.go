package sockets

import (
	"context"

	"clustermap/internal/engine"
	"clustermap/internal/subscriber"
	"clustermap/zmtp"
)

// Sub is a SUB socket (RFC 29). It subscribes to message prefixes at all
// publishers it is connected to, and receives the matching messages,
// fair-queued. A prefix is matched against the first frame of a message. The
// socket sends its subscriptions again after each reconnection. It discards
// messages that match none of its subscriptions before queuing them.
//
// All methods are safe for concurrent use.
type Sub struct{ subscribing }

// subscribing is the common part of SUB and XSUB.
type subscribing struct {
	receiving
	topics subscriber.Topics
}

// NewSub returns a new SUB socket, which receives nothing until Subscribe is
// called. If options are invalid, the error joins an [*OptionError] for each of
// them.
func NewSub(o Options) (*Sub, error) {
	s := &Sub{}
	return made(s, s.start(zmtp.TypeSub, o))
}

// start initializes the socket.
func (s *subscribing) start(kind zmtp.SocketType, o Options) error {
	own := kind == zmtp.TypeXSub
	var p engine.Pattern
	s.topics.Init(&s.core, own, &p)
	if !own { // the application of an XSUB looks at messages, as in libzmq, and its send calls never wait
		p.Sendable, p.Once = never, true
		p.Messages = func(_ *engine.Pipe, _ *engine.Peer, b *engine.Batch) (bool, error) {
			s.topics.Filter(b, s.opts().InvertMatching)
			return true, nil
		}
	}
	return s.init(kind, o, &p)
}

// Subscribe subscribes to messages whose first frame begins with topic. The
// empty topic matches all messages. A topic may have up to 32 KiB; a longer one
// is ErrTooLarge.
//
// Subscribe does not wait: the subscription takes effect at each publisher when
// the request arrives there; see WaitSubscribed. Over inproc it has taken
// effect when Subscribe returns, unless the publisher is an [XPub] whose
// receive queue is full.
//
// Subscriptions are counted: a topic that was subscribed to twice must be
// unsubscribed from twice.
func (s *subscribing) Subscribe(topic string) error {
	if err := s.core.Open(); err != nil {
		return err
	}
	if len(topic) > subscriber.MaxTopic {
		return ErrTooLarge
	}
	s.topics.Subscribe(topic)
	return nil
}

// Unsubscribe reverses one call of Subscribe with the same topic. If there is
// no such subscription it does nothing, except that an XSUB with
// Options.XSubVerboseUnsubscribe sends the unsubscription.
func (s *subscribing) Unsubscribe(topic string) error {
	if err := s.core.Open(); err != nil {
		return err
	}
	s.topics.Unsubscribe(topic, s.opts().XSubVerboseUnsubscribe)
	return nil
}

// Subscriptions returns the number of distinct topics to which the socket is
// subscribed.
func (s *subscribing) Subscriptions() int { return s.topics.Len() }

// WaitSubscribed waits until at least one publisher is connected and every
// connected publisher has answered a PING that was sent after all previous
// subscriptions, or until the context is done.
//
// A publisher of this package has then applied the subscriptions, so the socket
// receives matching messages that it publishes from now on. With libzmq this is
// only likely, because libzmq answers PINGs and sends messages in different
// threads; versions before 4.2 do not answer at all, so WaitSubscribed does not
// return before the context is done. Publishers that speak versions before ZMTP
// 3.0 are not asked and count as having answered.
//
// If the context is done first, the error is the context's, and wraps what the error of
// WaitPeers does.
func (s *subscribing) WaitSubscribed(ctx context.Context) error {
	if err := s.core.Open(); err != nil {
		return err
	}
	return s.unreached(s.topics.Wait(ctx))
}
