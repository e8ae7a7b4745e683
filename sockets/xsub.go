package sockets

import (
	"context"

	"clustermap/internal/fanout"
	"clustermap/internal/queue"
	"clustermap/internal/subscriber"
	"clustermap/zmtp"
)

// XSub is an XSUB socket (RFC 29): a SUB whose application can also send
// messages to all publishers it is connected to. An XPUB receives these
// messages, and a PUB discards them. A frame of byte 1 and a topic subscribes,
// and one of byte 0 and a topic unsubscribes, like Subscribe and Unsubscribe.
// These are the messages that XPub.Recv returns, so an XSUB and an XPUB
// together form a forwarder.
//
// Unlike a [Sub], an XSub does not check received messages against its
// subscriptions.
//
// All methods are safe for concurrent use.
type XSub struct{ subscribing }

// NewXSub returns a new XSUB socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewXSub(o Options) (*XSub, error) {
	s := &XSub{}
	return made(s, s.start(zmtp.TypeXSub, o))
}

// TrySend is the same as Send, which never waits.
func (s *XSub) TrySend(frames ...[]byte) error { return s.Send(queue.NoWait, frames...) }

// Send sends a message of one or more frames to all publishers. It copies the
// frames and never waits, so it does not use the context.
//
// Frames that begin with byte 1 or 0 subscribe and unsubscribe; see
// [Options.OnlyFirstSubscribe]. Every subscription is sent, even if the topic
// is already subscribed to. An unsubscription is sent only if it is the last
// one for its topic, unless Options.XSubVerboseUnsubscribe is set. The socket
// sends the subscriptions again after each reconnection. A topic of more than
// 32 KiB is ErrTooLarge.
//
// A message without such frames is an application message. It is dropped for a
// publisher whose queue is full. An endpoint that has not been connected yet
// gets it when the connection is established.
func (s *XSub) Send(ctx context.Context, frames ...[]byte) error {
	if err := s.check(frames); err != nil {
		return err
	}
	firstOnly := s.opts().OnlyFirstSubscribe
	kinds := fanout.Frames{FirstOnly: firstOnly}
	for _, f := range frames {
		if kinds.Kind(f) != fanout.UserFrame && len(f)-1 > subscriber.MaxTopic {
			return ErrTooLarge
		}
	}
	s.topics.Send(frames, firstOnly, s.opts().XSubVerboseUnsubscribe)
	return nil
}
