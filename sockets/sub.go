package sockets

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"

	"clustermap/internal/queue"
	"clustermap/internal/topic"
	"clustermap/zmtp"
)

// Sub is a SUB socket (RFC 29): it subscribes to prefixes of the first frame at
// every publisher it is connected to, and receives what matches, fairly from
// all of them. Subscriptions are sent again after a reconnection. What a
// publisher sends beyond the subscriptions is thrown away before it is queued.
//
// All methods are safe for concurrent use.
type Sub struct{ subscribing }

// subscribing is what SUB and XSUB share.
type subscribing struct {
	socket
	topics topics
}

// topics is what the application has subscribed to, and who knows it.
type topics struct {
	sync.RWMutex
	count   map[string]int // each Subscribe counts; only the last Unsubscribe is sent
	trie    topic.Trie[struct{}]
	peers   map[*Peer]uint64   // connected publishers: the version each is known to have in force
	version uint64             // of count, one more with each change; at least 1
	asked   uint64             // the last version that publishers were asked for, by a PING
	changed chan struct{}      // closed and replaced when peers changes
	pipes   map[*pipe]struct{} // what an XSUB's own messages go to, connected or not; nil with SUB
	local   []*half            // publishers connected over inproc; copied on write
}

// maxTopic bounds a topic, so that SUBSCRIBE fits in the smallest command that
// publishers take.
const maxTopic = 32 << 10

// NewSub makes a SUB socket, which receives nothing until it subscribes. It
// returns all faults of the options as one error.
func NewSub(o Options) (*Sub, error) {
	s := &Sub{}
	s.topics.init()
	if err := s.init(zmtp.SUB, o, (*subPattern)(&s.subscribing)); err != nil {
		return nil, err
	}
	return s, nil
}

func (t *topics) init() {
	t.count = map[string]int{}
	t.peers = map[*Peer]uint64{}
	t.changed = make(chan struct{})
	t.version = 1
}

// Subscribe asks for messages whose first frame begins with topic; the empty
// topic asks for all. It takes effect at each publisher when the request
// arrives there: see WaitSubscribed. Over inproc it has taken effect when
// Subscribe returns, unless the publisher is an [XPub] whose application is behind
// in receiving. Topics count: a topic subscribed to twice must be unsubscribed
// twice. A topic over 32 KiB is ErrTooLarge.
func (s *subscribing) Subscribe(topic string) error {
	if err := s.open(); err != nil {
		return err
	}
	if len(topic) > maxTopic {
		return ErrTooLarge
	}
	t := &s.topics
	t.Lock()
	defer t.unlock()
	t.add(topic)
	for peer := range t.peers {
		peer.request(appendSubscription(nil, peer, topic, true))
	}
	return nil
}

// unlock unlocks the mutex and makes publishers that are connected over inproc
// fetch what was queued for them.
func (t *topics) unlock() {
	local := t.local
	t.Unlock()
	for _, h := range local {
		h.pump()
	}
}

// add counts a subscription. The mutex must be held, here and in drop.
func (t *topics) add(topic string) {
	t.count[topic]++
	if t.count[topic] == 1 {
		t.trie.Add([]byte(topic), struct{}{})
	}
	t.version++
}

// drop takes back one subscription, and reports whether that was the last one
// to its topic.
func (t *topics) drop(topic string) (last bool) {
	switch t.count[topic] {
	case 0:
		return false
	case 1:
		delete(t.count, topic)
		t.trie.Remove([]byte(topic), struct{}{})
		t.version++
		return true
	}
	t.count[topic]--
	return false
}

// Unsubscribe takes back one Subscribe of the same topic. A topic that is not
// subscribed to is ignored.
func (s *subscribing) Unsubscribe(topic string) error {
	if err := s.open(); err != nil {
		return err
	}
	t := &s.topics
	t.Lock()
	defer t.unlock()
	if !t.drop(topic) && !s.verbose() {
		return nil
	}
	for peer := range t.peers {
		peer.request(appendSubscription(nil, peer, topic, false))
	}
	return nil
}

// verbose says that each end of a subscription is sent.
func (s *subscribing) verbose() bool {
	return s.kind == zmtp.XSUB && s.opts.XSubVerboseUnsubscribe
}

// Subscriptions returns the number of distinct topics subscribed to.
func (s *subscribing) Subscriptions() int {
	s.topics.RLock()
	defer s.topics.RUnlock()
	return len(s.topics.count)
}

// request queues command frames for a publisher. One that takes none for so
// long that they pile up to the high-water mark is disconnected; the next
// connection begins with what is subscribed to then.
func (p *Peer) request(frames []byte) {
	if !p.pipe.out.command(frames) {
		p.conn.close(ErrSlowPeer)
	}
}

// appendSubscription appends a subscription or its end in the form that the
// peer understands: a command, or before ZMTP 3.1 a message.
func appendSubscription(dst []byte, peer *Peer, topic string, subscribe bool) []byte {
	if peer.info.TakesSubscribe() {
		if subscribe {
			return zmtp.AppendSubscribe(dst, []byte(topic))
		}
		return zmtp.AppendCancel(dst, []byte(topic))
	}
	body := make([]byte, 1, 1+len(topic))
	if subscribe {
		body[0] = 1
	}
	return zmtp.AppendFrame(dst, append(body, topic...), false)
}

// WaitSubscribed waits until at least one publisher is connected and every
// connected one has answered a PING that was sent after all subscriptions so
// far. A publisher made with this package has then put them in force: what it
// sends from now on comes. libzmq answers a PING in another thread than the one
// that sends, so from there this is no more than likely; and before version
// 4.2 it does not answer at all. Publishers older than ZMTP 3.0 are not asked.
func (s *subscribing) WaitSubscribed(ctx context.Context) error {
	if err := s.open(); err != nil {
		return err
	}
	t := &s.topics
	t.Lock()
	mine := t.version
	if t.asked < mine {
		t.asked = mine
		for peer := range t.peers {
			peer.request(zmtp.AppendPing(nil, 0, pingContext(mine)))
		}
	}
	for !t.inForce(mine) {
		changed := t.changed
		t.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
		t.Lock()
	}
	t.Unlock()
	return nil
}

// inForce reports whether there are publishers and all of them have a version
// in force.
func (t *topics) inForce(version uint64) bool {
	for _, known := range t.peers {
		if known < version {
			return false
		}
	}
	return len(t.peers) > 0
}

// pingContext is the context of the PING that asks for a version.
func pingContext(version uint64) []byte { return binary.BigEndian.AppendUint64(nil, version) }

// TryRecv is Recv without waiting: if there is no message, it returns
// ErrWouldBlock.
func (s *subscribing) TryRecv() (Message, error) { return s.in.recv(queue.NoWait) }

// Recv waits for a message, until the context ends or for Options.RecvTimeout
// (ErrTimeout), and returns it. The caller owns it.
func (s *subscribing) Recv(ctx context.Context) (Message, error) { return s.in.recv(ctx) }

// RecvBatch waits for messages and lends those that one peer sent together:
// see [Batch].
func (s *subscribing) RecvBatch(ctx context.Context, b *Batch) error { return s.in.recvBatch(ctx, b) }

// subPattern is Sub as the engine sees it.
type subPattern subscribing

// added and removed are told of the pipes that Connect made, attach of all.
func (s *subPattern) added(p *pipe) {
	t := &s.topics
	if t.pipes != nil {
		t.Lock()
		t.pipes[p] = struct{}{}
		t.Unlock()
	}
}

func (s *subPattern) removed(p *pipe) {
	t := &s.topics
	if t.pipes != nil {
		t.Lock()
		delete(t.pipes, p)
		t.Unlock()
	}
}

func (s *subPattern) roomy(*pipe)    {}
func (s *subPattern) traits() traits { return traits{maxMessage: maxMessage} }

// attach sends all subscriptions, in the order of their bytes, and the PING
// that somebody may be waiting for.
func (s *subPattern) attach(p *pipe, peer *Peer) error {
	t := &s.topics
	t.Lock()
	defer t.Unlock()
	if t.pipes != nil && !p.lasting {
		t.pipes[p] = struct{}{}
	}
	var frames []byte
	for _, topic := range slices.Sorted(maps.Keys(t.count)) {
		frames = appendSubscription(frames, peer, topic, true)
	}
	if t.asked > 0 {
		frames = zmtp.AppendPing(frames, 0, pingContext(t.version))
	}
	if len(frames) > 0 {
		p.out.precede(frames, 0) // an XSUB's messages may be queued already
	}
	if peer.far != nil && peer.far.eager {
		t.local = append(slices.Clip(t.local), peer.far)
	}
	t.peers[peer] = 0
	if !peer.info.TakesCommands() {
		t.peers[peer] = math.MaxUint64 // it will never tell
	}
	t.announce()
	return nil
}

func (s *subPattern) detach(_ *pipe, peer *Peer) {
	t := &s.topics
	t.Lock()
	defer t.Unlock()
	delete(t.peers, peer)
	if i := slices.Index(t.local, peer.far); i >= 0 {
		t.local = slices.Concat(t.local[:i], t.local[i+1:])
	}
	t.announce()
}

func (t *topics) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// command takes the PONGs that WaitSubscribed waits for.
func (s *subPattern) command(_ *pipe, peer *Peer, name string, data []byte) error {
	if name != "PONG" || len(data) != 8 {
		return nil
	}
	n := binary.BigEndian.Uint64(data)
	t := &s.topics
	t.Lock()
	defer t.Unlock()
	if known, ok := t.peers[peer]; ok && n > known && n <= t.version {
		t.peers[peer] = n
		t.announce()
	}
	return nil
}

// messages takes out what is not subscribed to. An XSUB leaves that to its
// application, as libzmq does.
func (s *subPattern) messages(_ *pipe, peer *Peer, b *Batch) (bool, error) {
	if s.kind == zmtp.XSUB {
		return true, nil
	}
	t := &s.topics
	t.RLock()
	defer t.RUnlock()
	invert := s.opts.InvertMatching
	if len(t.trie.Root().Values()) > 0 && !invert {
		return true, nil
	}
	kept := b.spans[:0]
	for i, span := range b.spans {
		topic, _ := b.Message(i).Next()
		if t.trie.Matches(topic) != invert {
			kept = append(kept, span)
		}
	}
	if n := len(b.spans) - len(kept); n > 0 {
		peer.discarded.Add(uint64(n))
		b.spans = kept
	}
	return true, nil
}
