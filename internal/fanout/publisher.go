package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"clustermap/internal/queue"
)

// Errors of publishers; sockets has their documentation.
var (
	ErrTooManySubscriptions = errors.New("sockets: peer has too many subscriptions")
	ErrNotManual            = errors.New("sockets: option XPubManual is not set")
	ErrUnroutable           = errors.New("sockets: no such peer")
)

// Policy says what a publisher does with a message for a peer without room.
type Policy uint8

// The policies; sockets has their documentation.
const (
	Drop Policy = iota
	Block
	Disconnect
)

// Settings are the options that a publisher needs.
type Settings struct {
	Policy Policy
	Limits queue.HWM // of each queue
	Total  int64     // bytes of all queues together

	MaxTopics int  // of a subscriber
	MaxBytes  int  // of the topics of all subscribers, as far as they count
	Invert    bool // messages go to the peers that have not subscribed
	Wait      bool // messages wait for a subscriber

	// Of an XPUB: whether the application is told of each subscription and each
	// unsubscription, whether it applies them, and whether its next message is then only
	// for the peer that it has received from last.
	Verbose, Verboser bool
	Manual, LastValue bool
}

// Publisher has the subscriptions of all peers, and sends to those that have subscribed.
//
// One mutex guards all of it. The methods lock it, except those that say that it must be
// held: an XPUB holds it with Lock so that messages about subscriptions are in the order in
// which these took effect.
type Publisher struct {
	subscriptions
	Settings
	done <-chan struct{}

	shared []byte     // scratch of fanOut
	rest   queue.Wire // scratch of separate
	room   int64      // bytes that may be queued before the total is computed again; see release
	copied copies     // scratch of SendWire

	last *Subscriber // sender of the message received last, if manual
}

// Init initializes a publisher whose calls end when done is closed.
func (p *Publisher) Init(done <-chan struct{}) { p.done = done }

// Set makes settings take effect. Calls that wait for room or for a subscriber look again
// whether they still have to.
//
// When Manual is turned on, the peers keep their subscriptions, as if the application had
// applied them. When it is turned off, they keep those that it has applied.
func (p *Publisher) Set(now Settings) {
	p.Lock()
	was := p.Settings
	p.Settings = now
	p.max = now.MaxBytes
	p.room = 0 // the next message makes release add up the queues
	p.setInvert(now.Invert)
	var full []*queue.Outbox
	for q := range p.peers {
		q.room = queue.HWM{}
		full = append(full, q.out)
		switch {
		case was.Manual == now.Manual || q.group == nil:
		case now.Manual:
			for topic := range q.group.topics {
				_ = p.ask(q, []byte(topic), queue.Unbounded) // they are within the limits
			}
		default:
			p.count(q, -occupied(len(q.asked), q.askedBytes))
			q.asked, q.askedBytes = nil, 0
		}
	}
	if !now.Manual {
		p.last = nil
	}
	if !now.LastValue {
		p.only = nil
	}
	p.changed.WakeAll()
	p.release()
	for _, out := range full {
		out.Kick()
	}
}

// Handle applies a subscription or unsubscription that a peer has sent, or with Manual only
// records it, and reports whether the application of an XPUB is told of it. The mutex must
// be held.
func (p *Publisher) Handle(q *Subscriber, kind FrameKind, topic []byte) (told bool, err error) {
	switch {
	case p.Manual && kind == SubscribeFrame:
		return true, p.ask(q, topic, p.MaxTopics)
	case p.Manual:
		p.unask(q, topic)
		return true, nil
	case kind == SubscribeFrame:
		first, err := p.subscribe(q, topic, p.MaxTopics)
		return first || p.Verbose, err
	}
	had, last := p.cancel(q, topic)
	if !had {
		// libzmq always passes this on. But if other peers have the topic, a
		// forwarder would then end their subscription upstream.
		last = !p.trie.Has(topic)
	}
	return last || p.Verboser, nil
}

// ask records a subscription that a peer has asked for, within the same limits
// as for applied ones.
func (s *subscriptions) ask(q *Subscriber, topic []byte, limit int) error {
	if _, have := q.asked[string(topic)]; have {
		return nil
	}
	if len(q.asked) >= limit || q.askedBytes+len(topic) > maxTopicBytes {
		return ErrTooManySubscriptions
	}
	if err := s.occupy(q, len(topic), limit); err != nil {
		return err
	}
	if q.asked == nil {
		q.asked = map[string]struct{}{}
	}
	q.asked[string(topic)] = struct{}{}
	q.askedBytes += len(topic)
	return nil
}

func (s *subscriptions) unask(q *Subscriber, topic []byte) {
	if _, have := q.asked[string(topic)]; have {
		s.count(q, -occupied(1, len(topic)))
		delete(q.asked, string(topic))
		q.askedBytes -= len(topic)
	}
}

// Detach removes a peer whose connection has ended, and its topics. If tell is not nil, it
// is called with those of which the application is told, in sorted order, a number of them
// at a time, with the mutex held: the topics that no other peer has, or with Verboser or
// Manual all topics of the peer.
func (p *Publisher) Detach(q *Subscriber, tell func(topics []string)) {
	if tell != nil {
		p.withdraw(q, tell)
	}
	p.forget(q)
}

// withdraw cancels a peer's topics for Detach.
func (p *Publisher) withdraw(q *Subscriber, tell func(topics []string)) {
	p.Lock()
	p.part(q)
	if p.last == q {
		p.last = nil
	}
	manual := p.Manual
	had := q.asked
	if g := q.group; g != nil && !manual {
		had = g.topics
	}
	topics := slices.Sorted(maps.Keys(had))
	p.Unlock()

	for some := range slices.Chunk(topics, forgetBurst) {
		p.Lock()
		told := some[:0]
		for _, topic := range some {
			if !manual {
				if _, last := p.cancel(q, []byte(topic)); !last && !p.Verboser {
					continue
				}
			}
			told = append(told, topic)
		}
		tell(told)
		p.Unlock()
	}
}

// Received records the sender of the message that the application has received last.
func (p *Publisher) Received(q *Subscriber) {
	p.Lock()
	defer p.Unlock()
	if !p.Manual {
		return // since this moment
	}
	if q != nil && q.link == nil {
		q = nil // gone
	}
	p.last = q
	if p.LastValue {
		p.only = q
	}
}

// SubscribeFor applies a subscription for a peer, or for the one that Received has recorded
// if it is nil. The application's own subscriptions have no limit.
func (p *Publisher) SubscribeFor(q *Subscriber, topic string) error {
	return p.apply(q, func(q *Subscriber) { _, _ = p.subscribe(q, []byte(topic), queue.Unbounded) })
}

// UnsubscribeFor is the reverse of SubscribeFor.
func (p *Publisher) UnsubscribeFor(q *Subscriber, topic string) error {
	return p.apply(q, func(q *Subscriber) { p.cancel(q, []byte(topic)) })
}

func (p *Publisher) apply(q *Subscriber, change func(q *Subscriber)) error {
	p.Lock()
	defer p.Unlock()
	if q == nil {
		q = p.last
	}
	switch {
	case !p.Manual:
		return ErrNotManual
	case q == nil || q.link == nil: // nothing was received yet, or the peer has gone
		return ErrUnroutable
	}
	change(q)
	return nil
}

// Status is a snapshot of the subscriptions.
type Status struct {
	Topics  int  // distinct ones
	Bytes   int  // what the topics of all of them count
	Awaited bool // a call waits for a change
}

// Status returns a snapshot of the subscriptions.
func (p *Publisher) Status() Status {
	p.Lock()
	defer p.Unlock()
	return Status{p.trie.Len(), p.used, p.changed.Waiters() > 0}
}

// Await waits until at least n peers have a subscription that matches topic. The error of
// the context says how many have.
func (p *Publisher) Await(ctx context.Context, topic string, n int) error {
	p.Lock()
	defer p.Unlock()
	for sizeOf(p.find([]byte(topic))) < n {
		if err := p.changed.Wait(ctx, &p.Mutex, p.done, nil); err == queue.ErrClosed {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: %d of %d connected peers have a subscription that matches %.60q", err, sizeOf(p.find([]byte(topic))), len(p.peers), topic)
		}
	}
	return nil
}

// Blocked reports whether a message would have to wait for a peer. Peers that are too far
// behind in a log first get queues of their own, because only a queue signals when it has
// room.
func (p *Publisher) Blocked() bool {
	p.Lock()
	defer p.Unlock()
	if p.Policy != Block {
		return false
	}
	for _, g := range p.all {
		p.prepare(g)
	}
	for q := range p.peers {
		if q.out.Would() == queue.Full {
			return true
		}
	}
	return false
}
