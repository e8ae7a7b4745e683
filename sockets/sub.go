package sockets

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"

	"clustermap/internal/engine"
	"clustermap/internal/topic"
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
	topics topics
}

// topics holds the application's subscriptions, and which publishers have them.
type topics struct {
	sync.RWMutex
	count   map[string]int // each Subscribe counts; only the last Unsubscribe is sent
	trie    topic.Trie[struct{}]
	peers   map[*engine.Peer]uint64   // connected publishers, with the version that each has confirmed
	version uint64                    // of count, incremented by each change; at least 1
	asked   uint64                    // the last version for which a PING was sent to publishers
	changed chan struct{}             // closed and replaced when peers changes
	pipes   map[*engine.Pipe]struct{} // where an XSUB's own messages go, connected or not; nil for a SUB
	queued  int                       // bytes that were queued for publishers since the mutex was locked
	local   []*engine.Peer            // publishers connected over inproc; copied on write
}

// maxTopic is the maximum size of a topic: a SUBSCRIBE command with it still
// fits in the smallest command size that publishers accept.
const maxTopic = 32 << 10

// NewSub returns a new SUB socket, which receives nothing until Subscribe is
// called. If options are invalid, the error joins an [*OptionError] for each of
// them.
func NewSub(o Options) (*Sub, error) {
	s := &Sub{}
	return made(s, s.start(zmtp.TypeSub, o))
}

// start initializes the socket.
func (s *subscribing) start(kind zmtp.SocketType, o Options) error {
	s.topics.init()
	p := engine.Pattern{
		Added: s.added, Removed: s.removed, Attach: s.attach, Detach: s.detach, Command: s.command, Sendable: never,
	}
	if kind == zmtp.TypeXSub { // whose application looks at messages, as in libzmq, and whose send calls never wait
		s.topics.pipes = map[*engine.Pipe]struct{}{}
		p.Sendable = nil
	} else {
		p.Messages, p.Once = s.messages, true
	}
	return s.init(kind, o, &p)
}

func (t *topics) init() {
	t.count = map[string]int{}
	t.peers = map[*engine.Peer]uint64{}
	t.changed = make(chan struct{})
	t.version = 1
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
	if len(topic) > maxTopic {
		return ErrTooLarge
	}
	t := &s.topics
	t.Lock()
	defer s.unlock()
	t.add(topic)
	for peer := range t.peers {
		t.request(peer, appendSubscription(nil, peer, topic, true))
	}
	return nil
}

// unlock unlocks the mutex of the topics, lets publishers that are connected over inproc
// fetch the subscriptions queued for them, and enforces the bound on what is queued.
func (s *subscribing) unlock() {
	local := s.topics.local
	s.release()
	for _, p := range local {
		p.Pump()
	}
}

// release is unlock without the publishers that are connected over inproc.
func (s *subscribing) release() {
	n := s.topics.queued
	s.topics.queued = 0
	s.topics.Unlock()
	s.core.Queued(n)
}

// add counts a subscription. The mutex must be held, as in drop.
func (t *topics) add(topic string) {
	t.count[topic]++
	if t.count[topic] == 1 {
		t.trie.Add([]byte(topic), struct{}{})
	}
	t.version++
}

// drop removes one subscription and reports whether it was the last one to its
// topic.
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

// Unsubscribe reverses one call of Subscribe with the same topic. If there is
// no such subscription it does nothing, except that an XSUB with
// Options.XSubVerboseUnsubscribe sends the unsubscription.
func (s *subscribing) Unsubscribe(topic string) error {
	if err := s.core.Open(); err != nil {
		return err
	}
	t := &s.topics
	t.Lock()
	defer s.unlock()
	if !t.drop(topic) && !s.verbose() {
		return nil
	}
	for peer := range t.peers {
		t.request(peer, appendSubscription(nil, peer, topic, false))
	}
	return nil
}

// verbose reports whether every unsubscription is sent.
func (s *subscribing) verbose() bool {
	return s.topics.pipes != nil && s.opts().XSubVerboseUnsubscribe
}

// Subscriptions returns the number of distinct topics to which the socket is
// subscribed.
func (s *subscribing) Subscriptions() int {
	s.topics.RLock()
	defer s.topics.RUnlock()
	return len(s.topics.count)
}

// request queues command frames for a publisher. The mutex must be held.
func (t *topics) request(p *engine.Peer, frames []byte) {
	p.Request(frames)
	t.queued += len(frames)
}

// appendSubscription appends a subscription or unsubscription in the form that
// the peer understands: a command, or before ZMTP 3.1 a message.
func appendSubscription(dst []byte, peer *engine.Peer, topic string, subscribe bool) []byte {
	if peer.Info().TakesSubscribe() {
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
// connected publisher has answered a PING that was sent after all previous
// subscriptions, or until the context is done.
//
// A publisher of this package has then applied the subscriptions, so the socket
// receives matching messages that it publishes from now on. With libzmq this is
// only likely, because libzmq answers PINGs and sends messages in different
// threads; versions before 4.2 do not answer at all, so WaitSubscribed does not
// return before the context is done. Publishers that speak versions before ZMTP
// 3.0 are not asked and count as having answered.
func (s *subscribing) WaitSubscribed(ctx context.Context) error {
	if err := s.core.Open(); err != nil {
		return err
	}
	t := &s.topics
	t.Lock()
	mine := t.version
	if t.asked < mine {
		t.asked = mine
		for peer := range t.peers {
			t.request(peer, zmtp.AppendPing(nil, 0, pingContext(mine)))
		}
	}
	for !t.inForce(mine) {
		changed := t.changed
		t.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.core.Closing():
			return ErrClosed
		}
		t.Lock()
	}
	t.Unlock()
	return nil
}

// inForce reports whether there are publishers and all of them have confirmed
// the given version.
func (t *topics) inForce(version uint64) bool {
	for _, known := range t.peers {
		if known < version {
			return false
		}
	}
	return len(t.peers) > 0
}

// pingContext returns the context of the PING that asks for a version.
func pingContext(version uint64) []byte { return binary.BigEndian.AppendUint64(nil, version) }

// added and removed are called for the pipes that Connect made, attach for all.
func (s *subscribing) added(p *engine.Pipe) {
	t := &s.topics
	if t.pipes != nil {
		t.Lock()
		t.pipes[p] = struct{}{}
		t.Unlock()
	}
}

func (s *subscribing) removed(p *engine.Pipe) {
	s.topics.Lock()
	defer s.topics.Unlock()
	delete(s.topics.pipes, p)
}

// attach sends all subscriptions, sorted, and the PING that a WaitSubscribed
// may be waiting for.
func (s *subscribing) attach(p *engine.Pipe, peer *engine.Peer) error {
	t := &s.topics
	t.Lock()
	defer s.release()
	if t.pipes != nil && !p.Lasting {
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
		p.Out.Precede(frames, 0) // messages of an XSUB may be queued already
		t.queued += len(frames)
	}
	if peer.Eager() {
		t.local = append(slices.Clip(t.local), peer)
	}
	t.peers[peer] = 0
	if !peer.Info().TakesCommands() {
		t.peers[peer] = math.MaxUint64 // it cannot answer
	}
	t.announce()
	return nil
}

func (s *subscribing) detach(_ *engine.Pipe, peer *engine.Peer) {
	t := &s.topics
	t.Lock()
	defer t.Unlock()
	delete(t.peers, peer)
	if i := slices.Index(t.local, peer); i >= 0 {
		t.local = slices.Concat(t.local[:i], t.local[i+1:])
	}
	t.announce()
}

func (t *topics) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// command handles the PONGs that WaitSubscribed waits for.
func (s *subscribing) command(_ *engine.Pipe, peer *engine.Peer, name string, data []byte) error {
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

// messages removes messages that match no subscription.
func (s *subscribing) messages(_ *engine.Pipe, _ *engine.Peer, b *engine.Batch) (bool, error) {
	t := &s.topics
	t.RLock()
	defer t.RUnlock()
	invert := s.opts().InvertMatching
	if len(t.trie.Root().Values()) == 0 || invert {
		b.Keep(func(m zmtp.WireMessage) bool {
			topic, _ := m.Next()
			return t.trie.Matches(topic) != invert
		})
	}
	return true, nil
}
