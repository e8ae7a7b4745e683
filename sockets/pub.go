package sockets

import (
	"context"

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
type Pub struct{ publisher }

// publisher is the common part of PUB and XPUB.
type publisher struct {
	socket
	defaults
	subs   subscriptions
	shared []byte     // scratch of fanOut
	rest   queue.Wire // scratch of separate
	room   int64      // bytes that may be queued before the total is computed again; see unlock
	copied copies     // scratch of sendWire

	// From the options; guarded by the mutex of subs.
	policy Policy
	limits hwm   // SendHWM and SendHWMBytes
	total  int64 // SendTotalBytes
}

// start initializes the socket, of which p is the pattern.
func (p *publisher) start(kind zmtp.SocketType, o Options, as pattern) error {
	err := p.init(kind, o, as)
	if err == nil {
		p.set(p.opts())
	}
	return err
}

// set takes over the options that the publisher needs for each message. The mutex of subs
// must be held, unless the socket is new.
func (p *publisher) set(o *Options) {
	p.policy, p.limits, p.total = o.FullPolicy, o.sendLimits(), int64(o.SendTotalBytes)
	p.room = 0 // the next message makes unlock add up the queues
	p.subs.max = o.MaxSubscriptionBytes
	p.subs.setInvert(o.InvertMatching)
}

// changed makes the options take effect. Calls that wait for room or for a subscriber
// look again whether they still have to.
func (p *publisher) changed(_, now *Options) {
	pipes := p.list()
	p.subs.Lock()
	p.set(now)
	for _, q := range pipes {
		q.sub.room = hwm{}
	}
	p.subs.announce()
	p.unlock()
	for _, q := range pipes {
		q.out.Kick()
	}
}

// NewPub returns a new PUB socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPub(o Options) (*Pub, error) {
	p := &Pub{}
	return made(p, p.start(zmtp.TypePub, o, &p.publisher))
}

// Send publishes a message of one or more frames; its first frame is matched
// against the subscriptions. It copies the frames.
//
// Send waits only if Options.WaitSubscriber is set and there is no subscriber,
// or if Options.FullPolicy is PolicyBlock and a subscriber's queue is full. It then
// waits until the context is done or until Options.SendTimeout has passed
// (ErrTimeout). If it returns an error, no peer receives the message.
func (p *publisher) Send(ctx context.Context, frames ...[]byte) error {
	if err := p.check(frames); err != nil {
		return err
	}
	l := p.settings.sendLimit()
	p.subs.Lock()
	for {
		groups, alone, n := p.subs.audience(frames[0])
		if n == 0 {
			if !p.opts().WaitSubscriber {
				p.subs.only = nil
				p.subs.Unlock()
				return nil
			}
			if err := p.waitChange(ctx, &l); err != nil {
				return err
			}
			continue
		}
		var full *pipe
		switch {
		case alone != nil:
			full = p.sendAlone(alone, frames)
		case n > 1:
			full = p.fanOut(groups, frames)
		}
		if full != nil {
			p.subs.Unlock()
			if err := full.out.WaitRoom(ctx, nil, p.closing, &l); err != nil {
				return err
			}
			p.subs.Lock()
			continue
		}
		p.subs.only = nil
		p.unlock()
		return nil
	}
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (p *publisher) TrySend(frames ...[]byte) error { return p.Send(queue.NoWait, frames...) }

// SendWire publishes messages that are already encoded: wire holds the given
// number of complete messages in ZMTP 3 framing, one after another (see
// [zmtp.AppendMessage]). Each is matched against the subscriptions.
//
// If owner is nil, SendWire copies wire. Otherwise it may keep a reference to
// it, for peers that have subscribed to everything: it calls owner.Retain, the
// bytes must not change, and the socket calls owner.Release when it has written
// or dropped them. Other peers get copies of the messages that match their
// subscriptions, and a short run is copied in any case.
//
// SendWire checks the queues once per call, not per message. With
// PolicyBlock it waits like Send. Options.WaitSubscriber does not apply.
//
// It is part of the advanced interface; see the package documentation.
func (p *publisher) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return p.sendWire(ctx, wire, messages, nil, owner)
}

// SendSpans is like SendWire for callers that know the sizes of the messages,
// which saves finding where each message ends. The messages in wire must follow
// one another and have the sizes of the spans, in order. Only End-Start of a
// span matters.
//
// It is part of the advanced interface; see the package documentation.
func (p *publisher) SendSpans(ctx context.Context, wire []byte, spans []Span, owner Owner) error {
	return p.sendWire(ctx, wire, len(spans), spans, owner)
}

func (p *publisher) sendWire(ctx context.Context, wire []byte, messages int, spans []Span, owner Owner) error {
	if err := p.open(); err != nil || len(wire) == 0 {
		return err
	}
	l := p.settings.sendLimit()
	p.subs.Lock()
	for {
		groups := p.subs.sort(wire, spans)
		var alone *pipe
		if p.subs.only != nil {
			if alone = p.subs.chosen(groups); alone == nil {
				groups = nil
			}
		}
		if full := p.crowded(groups, alone); full != nil {
			p.subs.reset()
			p.subs.Unlock()
			if err := full.out.WaitRoom(ctx, nil, p.closing, &l); err != nil {
				return err
			}
			p.subs.Lock()
			continue
		}
		if alone != nil {
			p.offerWireAlone(alone, wire, messages, owner)
			groups = nil
		}
		p.copied.begin(p.policy)
		for _, g := range groups {
			p.offerWire(g, wire, messages, owner)
		}
		p.copied.end()
		p.subs.reset()
		p.subs.only = nil
		p.unlock()
		return nil
	}
}

// waitChange waits until a peer subscribes. It is called with the mutex held
// and returns with it held unless it returns an error.
func (p *publisher) waitChange(ctx context.Context, l *queue.Limit) error {
	if p.subs.changed == nil {
		p.subs.changed = make(chan struct{})
	}
	changed := p.subs.changed
	p.subs.Unlock()
	expired, err := l.Start()
	if err != nil {
		return err
	}
	select {
	case <-changed:
	case <-expired:
		return ErrTimeout
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closing:
		return ErrClosed
	}
	p.subs.Lock()
	return nil
}

// WaitSubscribers waits until at least n connected peers have a subscription
// that matches topic, or until the context is done. Messages published
// afterwards under that topic are queued for these peers.
func (p *publisher) WaitSubscribers(ctx context.Context, topic string, n int) error {
	if err := p.open(); err != nil {
		return err
	}
	p.subs.Lock()
	for sizeOf(p.subs.find([]byte(topic))) < n {
		if err := p.waitChange(ctx, nil); err != nil {
			return err
		}
	}
	p.subs.Unlock()
	return nil
}

// Subscriptions returns the number of distinct topics to which peers have
// subscribed.
func (p *publisher) Subscriptions() int {
	p.subs.Lock()
	defer p.subs.Unlock()
	return p.subs.trie.Len()
}

// attach queues the welcome message before anything else.
func (p *publisher) attach(q *pipe, peer *Peer) error {
	if welcome := peer.conn.opts.WelcomeMessage; len(welcome) > 0 {
		q.out.Offer(nil, nil, [][]byte{welcome})
	}
	p.subs.attach(q, peer)
	return nil
}

// traits: messages and commands must be processed in order, because a PING
// after a subscription asks whether the subscription is in force.
func (p *publisher) traits() traits {
	return traits{ordered: true, subscribed: true, prompt: true, maxMessage: maxSubscription}
}

// maxSubscription limits the size of a message to a PUB. A PUB only accepts
// subscriptions and discards everything else, so there is no point in
// collecting large messages.
const maxSubscription = 1 << 20

func (p *publisher) detach(q *pipe, _ *Peer) { p.subs.forget(q) }

// messages applies subscriptions and unsubscriptions and discards everything
// else.
func (p *publisher) messages(q *pipe, peer *Peer, b *Batch) (bool, error) {
	for i := range b.Len() {
		up := upstream{firstOnly: p.opts().OnlyFirstSubscribe}
		useless := true
		for m := b.Message(i); len(m) > 0; {
			var body []byte
			body, m = m.Next()
			kind := up.kind(body)
			if kind == userFrame {
				continue
			}
			useless = false
			if err := p.obey(q, kind, body[1:]); err != nil {
				return false, err
			}
		}
		if useless {
			peer.conduit.Discarded.Add(1)
		}
	}
	return false, nil
}

func (p *publisher) obey(q *pipe, kind frameKind, topic []byte) error {
	p.subs.Lock()
	defer p.subs.Unlock()
	if kind == cancelFrame {
		p.subs.cancel(q, topic)
		return nil
	}
	o := p.opts()
	if len(topic) > o.MaxTopicSize {
		return ErrTooLarge
	}
	_, err := p.subs.subscribe(q, topic, o.MaxSubscriptions)
	return err
}
