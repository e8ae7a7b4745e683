package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Pub is a PUB socket (RFC 29): it sends each message to all peers that have
// subscribed to a prefix of the message's first frame, once to each. What
// happens when a peer's queue is full is for Options.FullPolicy to say; what
// nobody has subscribed to is dropped, unless Options.WaitSubscriber is set. A
// Pub receives nothing; for one that does, see [XPub].
//
// All methods are safe for concurrent use.
type Pub struct{ publisher }

// publisher is what PUB and XPUB share.
type publisher struct {
	socket
	subs   subscriptions
	shared []byte   // scratch of fanOut
	rest   outqueue // scratch of separate
	room   int64    // bytes that may be queued before the queues are added up again; see unlock
	copied copies   // scratch of sendWire
}

// NewPub makes a PUB socket. It returns all faults of the options as one error.
func NewPub(o Options) (*Pub, error) {
	p := &Pub{}
	if err := p.init(zmtp.PUB, o, (*pubPattern)(&p.publisher)); err != nil {
		return nil, err
	}
	p.subs.invert = p.opts.InvertMatching
	return p, nil
}

// Send publishes one message under its first frame. It copies the frames. With
// the policies Drop and Disconnect it does not wait, except for a subscriber
// if Options.WaitSubscriber is set. With Block it waits until every peer that
// is to have the message has room; when the context or Options.SendTimeout ends
// first (ErrTimeout), no peer gets it.
func (p *publisher) Send(ctx context.Context, frames ...[]byte) error {
	if err := p.check(frames); err != nil {
		return err
	}
	l := queue.Limit{Patience: p.opts.SendTimeout}
	p.subs.Lock()
	for {
		groups, alone, n := p.subs.audience(frames[0])
		if n == 0 {
			if !p.opts.WaitSubscriber {
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
			if err := full.out.waitRoomWithin(ctx, nil, p.closing, &l); err != nil {
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

// TrySend is Send without waiting: if it would have to, it returns
// ErrWouldBlock.
func (p *publisher) TrySend(frames ...[]byte) error { return p.Send(queue.NoWait, frames...) }

// SendWire publishes messages that are in wire form already: wire holds the
// given number of whole messages, one behind the other. A peer that subscribed
// to everything is lent the bytes as they are, if they are many: the owner is
// retained until they are written, and until then they must not change. Other
// peers get copies of what they subscribed to. With a nil owner all is copied.
//
// Queues are checked once a call, not once a message. Options.WaitSubscriber
// does not apply. With the policy Block it waits as Send does.
func (p *publisher) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return p.sendWire(ctx, wire, messages, nil, owner)
}

// SendSpans is SendWire for callers that know the messages' sizes: wire holds
// the messages of spans, one behind the other. Only the sizes of the spans
// count, not where they begin. It saves looking for the ends of the messages.
func (p *publisher) SendSpans(ctx context.Context, wire []byte, spans []Span, owner Owner) error {
	return p.sendWire(ctx, wire, len(spans), spans, owner)
}

func (p *publisher) sendWire(ctx context.Context, wire []byte, messages int, spans []Span, owner Owner) error {
	if err := p.open(); err != nil || len(wire) == 0 {
		return err
	}
	l := queue.Limit{Patience: p.opts.SendTimeout}
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
			if err := full.out.waitRoomWithin(ctx, nil, p.closing, &l); err != nil {
				return err
			}
			p.subs.Lock()
			continue
		}
		if alone != nil {
			p.offerWireAlone(alone, wire, messages, owner)
			groups = nil
		}
		p.copied.begin(p.opts.FullPolicy)
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

// waitChange waits for a subscription to come. It is called with the mutex
// held and returns with it held, unless it returns an error.
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
// that matches topic. Messages under that topic will be queued for them from
// then on.
func (p *publisher) WaitSubscribers(ctx context.Context, topic []byte, n int) error {
	if err := p.open(); err != nil {
		return err
	}
	p.subs.Lock()
	for sizeOf(p.subs.find(topic)) < n {
		if err := p.waitChange(ctx, nil); err != nil {
			return err
		}
	}
	p.subs.Unlock()
	return nil
}

// Subscriptions returns the number of distinct topics subscribed to.
func (p *publisher) Subscriptions() int {
	p.subs.Lock()
	defer p.subs.Unlock()
	return p.subs.trie.Len()
}

// pubPattern is Pub as the engine sees it.
type pubPattern publisher

func (p *pubPattern) added(*pipe)   {}
func (p *pubPattern) removed(*pipe) {}
func (p *pubPattern) roomy(*pipe)   {}

// attach sends the welcome message, before anything else.
func (p *pubPattern) attach(q *pipe, peer *Peer) error {
	if len(p.opts.WelcomeMessage) > 0 {
		q.out.offer(nil, [][]byte{p.opts.WelcomeMessage})
	}
	p.subs.attach(q, peer)
	return nil
}

// traits: a PING after a subscription asks whether it is in force.
func (p *pubPattern) traits() traits {
	return traits{ordered: true, subscribed: true, maxMessage: maxSubscription}
}

// maxSubscription bounds a message to a PUB. All that it has a use for there is
// a topic (ZMTP 3.0); what else a peer may send is thrown away, and need not be
// collected by the hundred megabytes before.
const maxSubscription = 1 << 20

func (p *pubPattern) detach(q *pipe, _ *Peer) { p.subs.forget(q) }

func (p *pubPattern) command(*pipe, *Peer, string, []byte) error { return nil }

// messages takes subscriptions and their ends. A PUB has no use for anything
// else that a subscriber may send.
func (p *pubPattern) messages(q *pipe, peer *Peer, b *Batch) (bool, error) {
	for i := range b.Len() {
		up := upstream{firstOnly: p.opts.OnlyFirstSubscribe}
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
			peer.discarded.Add(1)
		}
	}
	return false, nil
}

func (p *pubPattern) obey(q *pipe, kind frameKind, topic []byte) error {
	p.subs.Lock()
	defer p.subs.Unlock()
	if kind == cancelFrame {
		p.subs.cancel(q, topic)
		return nil
	}
	_, err := p.subs.subscribe(q, topic, p.opts.MaxSubscriptions)
	return err
}
