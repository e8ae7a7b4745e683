package sockets

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/engine"
	"clustermap/internal/fanout"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Pub is a PUB socket (RFC 29). It sends each message to all peers that have
// subscribed to a prefix of the message's first frame, once to each. A message
// that matches no subscription is dropped, unless Options.WaitSubscriber is
// set. Options.FullPolicy applies if the queue of a peer is full. A Pub receives nothing;
// see [XPub] for a publisher that does.
//
// All methods are safe for concurrent use.
type Pub struct {
	socket
	publisher
}

// publisher is the common part of PUB and XPUB.
type publisher struct {
	fan   fanout.Publisher
	owner *socket
	admit func(peer any, topic []byte) bool // hooks.Admit
}

// start initializes the socket s, of which p is a part. The pattern has what PUB and XPUB do not
// have in common.
func (p *publisher) start(s *socket, kind zmtp.SocketType, o Options, as engine.Pattern) error {
	p.owner, s.changed = s, p.set
	as.Attach, as.Sendable = p.attach, p.sendable
	// Messages and commands must be processed in order, because a PING after a subscription
	// asks whether the subscription is in force.
	as.Ordered, as.Subscribed = true, true
	err := s.init(kind, o, &as)
	if err == nil {
		p.fan.Init(s.core.Closing())
	}
	return err
}

// set makes options take effect.
func (p *publisher) set(now *Options) {
	p.fan.Set(fanout.Settings{
		Policy: fanout.Policy(now.FullPolicy), Limits: now.sendLimits(), Total: int64(now.SendTotalBytes),
		MaxTopics: now.MaxSubscriptions, MaxBytes: now.MaxSubscriptionBytes,
		Invert: now.InvertMatching, Wait: now.WaitSubscriber,
		Verbose: now.XPubVerbose, Verboser: now.XPubVerboser, Manual: now.XPubManual, LastValue: now.XPubManualLastValue,
	})
}

// NewPub returns a new PUB socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPub(o Options) (*Pub, error) {
	p := &Pub{}
	as := engine.Pattern{Detach: p.detach, Messages: p.messages}
	as.Once, as.Prompt, as.MaxMessage = true, true, maxSubscription
	return made(p, p.start(&p.socket, zmtp.TypePub, o, as))
}

// Send publishes a message of one or more frames; its first frame is matched
// against the subscriptions. It copies the frames.
//
// Send waits only if Options.WaitSubscriber is set and there is no subscriber,
// or if Options.FullPolicy is PolicyBlock and a subscriber's queue is full. It then
// waits until the context is done or until Options.SendTimeout has passed
// (ErrTimeout). If it returns an error, no peer receives the message.
func (p *publisher) Send(ctx context.Context, frames ...[]byte) error {
	if err := p.owner.check(frames); err != nil {
		return err
	}
	return p.fan.Send(ctx, p.owner.core.SendLimit(), frames)
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (p *publisher) TrySend(frames ...[]byte) error { return p.Send(queue.NoWait, frames...) }

// sendWire is hooks.SendWire, and sendSpans the same with or without spans.
func (p *publisher) sendWire(ctx context.Context, wire []byte, messages int, owner queue.Owner) error {
	return p.sendSpans(ctx, wire, messages, nil, owner)
}

func (p *publisher) sendSpans(ctx context.Context, wire []byte, messages int, spans []buf.Span, owner queue.Owner) error {
	if err := p.owner.core.Open(); err != nil {
		return err
	}
	return p.fan.SendWire(ctx, p.owner.core.SendLimit(), wire, messages, spans, owner)
}

// SendBatch publishes each element of bodies as a message of one frame, which
// is its own topic. It copies the bodies. It waits like Send and returns the
// number of messages published, which is len(bodies) unless the error is not
// nil.
//
// SendBatch is more efficient than calling Send for each message. It checks the
// queues once for each run of messages, of up to 512 KiB, so a queue may exceed
// its high-water mark by that much.
func (p *publisher) SendBatch(ctx context.Context, bodies [][]byte) (sent int, err error) {
	if err := p.owner.checkEach(bodies); err != nil {
		return 0, err
	}
	return p.fan.SendBatch(ctx, p.owner.core.SendLimit(), bodies)
}

// WaitSubscribers waits until at least n connected peers have a subscription
// that matches topic, or until the context is done. Messages published
// afterwards under that topic are queued for these peers.
//
// If the context is done first, the error is the context's. It also says how many of the
// connected peers have such a subscription, and wraps what the error of WaitPeers does.
func (p *publisher) WaitSubscribers(ctx context.Context, topic string, n int) error {
	if err := p.owner.core.Open(); err != nil {
		return err
	}
	return p.owner.unreached(p.fan.Await(ctx, topic, n))
}

// Subscriptions returns the number of distinct topics to which peers have
// subscribed.
func (p *publisher) Subscriptions() int { return p.fan.Status().Topics }

// Fullest returns how full the fullest queue of a reading subscriber is, from 0
// for empty to 1 for Options.SendHWMBytes bytes or more. A publisher can use it
// to slow down before messages are dropped.
//
// Queues that are less than a quarter full count as empty. Subscribers that
// take less than an eighth of the bytes sent to them are ignored, so that a
// publisher does not wait for one that has stopped reading. The cost of a call
// is proportional to the number of subscribers.
func (p *publisher) Fullest() float64 { return p.fan.Fullest() }

// sendable: with PolicyBlock, a send call waits until every peer has room.
func (p *publisher) sendable() bool { return !p.fan.Blocked() }

// attach queues the welcome message before anything else.
func (p *publisher) attach(q *engine.Pipe, peer *engine.Peer) error {
	if welcome := optionsOf(peer).WelcomeMessage; len(welcome) > 0 {
		q.Out.Offer(nil, nil, [][]byte{welcome})
	}
	peer.SetRole(p.fan.Attach(peer, &q.Out, q.In.Client(), q.Inproc() || p.owner.opts().Conflate))
	return nil
}

// roleOf returns what a publisher knows of a peer; nil until it is attached.
func roleOf(peer *engine.Peer) *fanout.Subscriber {
	q, _ := peer.Role().(*fanout.Subscriber)
	return q
}

func (p *publisher) detach(_ *engine.Pipe, peer *engine.Peer) { p.fan.Detach(roleOf(peer), nil) }

// messages applies subscriptions and unsubscriptions and discards everything
// else.
func (p *publisher) messages(_ *engine.Pipe, peer *engine.Peer, b *engine.Batch) (bool, error) {
	o := p.owner.opts()
	for i := range b.Len() {
		frames := fanout.Frames{FirstOnly: o.OnlyFirstSubscribe}
		useless := true
		for m := b.Message(i); len(m) > 0; {
			var body []byte
			body, m = m.Next()
			kind := frames.Kind(body)
			if kind == fanout.UserFrame {
				continue
			}
			useless = false
			p.fan.Lock()
			_, err := p.handle(peer, kind, body[1:])
			p.fan.Unlock()
			if err != nil {
				return false, err
			}
		}
		if useless {
			peer.Conn().Discarded.Add(1)
		}
	}
	return false, nil
}

// handle applies a subscription or unsubscription, or with XPubManual only records it, and
// reports whether the application receives it. The mutex of fan must be held.
func (p *publisher) handle(peer *engine.Peer, kind fanout.FrameKind, topic []byte) (told bool, err error) {
	if kind == fanout.SubscribeFrame && len(topic) > p.owner.opts().MaxTopicSize {
		return false, ErrTooLarge
	}
	if kind == fanout.SubscribeFrame && p.admit != nil && !p.admit((*Peer)(peer), topic) {
		return false, nil
	}
	return p.fan.Handle(roleOf(peer), kind, topic)
}
