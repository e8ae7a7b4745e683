// Package subscriber has the subscriptions of a SUB or XSUB: it tells its publishers of them,
// and knows which publishers have them in force. Package fanout is the other end.
package subscriber

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"

	"clustermap/internal/engine"
	"clustermap/internal/fanout"
	"clustermap/internal/queue"
	"clustermap/internal/topic"
	"clustermap/zmtp"
)

// Topics are the application's subscriptions, and which publishers have them.
type Topics struct {
	core *engine.Socket
	own  bool // the application sends messages of its own, as that of an XSUB

	mu      sync.RWMutex
	count   map[string]int // each Subscribe counts; only the last Unsubscribe is sent
	trie    topic.Trie[struct{}]
	peers   map[*engine.Peer]uint64   // connected publishers, with the version that each has confirmed
	version uint64                    // of count, incremented by each change; at least 1
	asked   uint64                    // the last version for which a PING was sent to publishers
	changed queue.Gate                // for changes of peers
	pipes   map[*engine.Pipe]struct{} // where own messages go, connected or not
	queued  int                       // bytes that were queued for publishers since the mutex was locked
	local   []*engine.Peer            // publishers connected over inproc; copied on write
}

// MaxTopic is the maximum size of a topic: a SUBSCRIBE command with it still
// fits in the smallest command size that publishers accept.
const MaxTopic = 32 << 10

// Init initializes the subscriptions of a socket, and the functions of its pattern that tell
// publishers of them. If own is set, the application sends messages of its own.
func (t *Topics) Init(core *engine.Socket, own bool, p *engine.Pattern) {
	t.core, t.own = core, own
	t.count = map[string]int{}
	t.peers = map[*engine.Peer]uint64{}
	t.pipes = map[*engine.Pipe]struct{}{}
	t.version = 1
	p.Added, p.Removed, p.Attach, p.Detach, p.Command = t.added, t.removed, t.attach, t.detach, t.command
}

// Subscribe and Unsubscribe change the subscriptions, and do not wait. If verbose is set, the
// latter tells the publishers also if it was not the last one of its topic.
func (t *Topics) Subscribe(topic string) {
	t.mu.Lock()
	defer t.unlock()
	t.add(topic)
	for peer := range t.peers {
		t.request(peer, appendSubscription(nil, peer, topic, true))
	}
}

// Unsubscribe is described at Subscribe.
func (t *Topics) Unsubscribe(topic string, verbose bool) {
	t.mu.Lock()
	defer t.unlock()
	if !t.drop(topic) && !verbose {
		return
	}
	for peer := range t.peers {
		t.request(peer, appendSubscription(nil, peer, topic, false))
	}
}

// Send sends a message of the application, whose frames may be subscriptions, in the order
// of the frames.
func (t *Topics) Send(frames [][]byte, firstOnly, verbose bool) {
	t.mu.Lock()
	defer t.unlock()
	if !hasSubscription(frames, firstOnly) {
		for p := range t.pipes {
			switch p.Out.Offer(nil, nil, frames) {
			case queue.Accepted:
				t.queued += engine.BodiesSize(frames)
			case queue.Full:
				p.Out.CountDrops(1)
			}
		}
		return
	}
	kinds := fanout.Frames{FirstOnly: firstOnly}
	sent := make([][]byte, 0, len(frames))
	for _, f := range frames {
		switch kinds.Kind(f) {
		case fanout.SubscribeFrame:
			t.add(string(f[1:]))
		case fanout.CancelFrame:
			if !t.drop(string(f[1:])) && !verbose {
				continue
			}
		}
		sent = append(sent, f)
	}
	if len(sent) == 0 {
		return
	}
	wire := zmtp.AppendMessage(nil, sent...)
	for peer := range t.peers {
		t.request(peer, wire)
	}
}

// hasSubscription reports whether a frame is a subscription or unsubscription.
func hasSubscription(frames [][]byte, firstOnly bool) bool {
	kinds := fanout.Frames{FirstOnly: firstOnly}
	return slices.ContainsFunc(frames, func(f []byte) bool { return kinds.Kind(f) != fanout.UserFrame })
}

// Len returns the number of distinct topics.
func (t *Topics) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.count)
}

// unlock unlocks the mutex of the topics, lets publishers that are connected over inproc
// fetch the subscriptions queued for them, and enforces the bound on what is queued.
func (t *Topics) unlock() {
	local := t.local
	t.release()
	for _, p := range local {
		p.Pump()
	}
}

// release is unlock without the publishers that are connected over inproc.
func (t *Topics) release() {
	n := t.queued
	t.queued = 0
	t.mu.Unlock()
	t.core.Queued(n)
}

// add counts a subscription. The mutex must be held, as in drop.
func (t *Topics) add(topic string) {
	t.count[topic]++
	if t.count[topic] == 1 {
		t.trie.Add([]byte(topic), struct{}{})
	}
	t.version++
}

// drop removes one subscription and reports whether it was the last one to its
// topic.
func (t *Topics) drop(topic string) (last bool) {
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

// request queues command frames for a publisher. The mutex must be held.
func (t *Topics) request(p *engine.Peer, frames []byte) {
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

// Wait waits until there is a publisher, and all of them have answered a PING that was sent
// after all previous subscriptions.
func (t *Topics) Wait(ctx context.Context) error {
	t.mu.Lock()
	mine := t.version
	if t.asked < mine {
		t.asked = mine
		for peer := range t.peers {
			t.request(peer, zmtp.AppendPing(nil, 0, pingContext(mine)))
		}
	}
	t.release()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.inForce(mine) {
		if err := t.changed.Wait(ctx, &t.mu, t.core.Closing(), nil); err != nil {
			return err
		}
	}
	return nil
}

// inForce reports whether there are publishers and all of them have confirmed
// the given version.
func (t *Topics) inForce(version uint64) bool {
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
func (t *Topics) added(p *engine.Pipe) {
	if t.own {
		t.mu.Lock()
		t.pipes[p] = struct{}{}
		t.mu.Unlock()
	}
}

func (t *Topics) removed(p *engine.Pipe) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pipes, p)
}

// attach sends all subscriptions, sorted, and the PING that a WaitSubscribed
// may be waiting for.
func (t *Topics) attach(p *engine.Pipe, peer *engine.Peer) error {
	t.mu.Lock()
	defer t.release()
	if t.own && !p.Lasting {
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
	t.changed.WakeAll()
	return nil
}

func (t *Topics) detach(_ *engine.Pipe, peer *engine.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.peers, peer)
	if i := slices.Index(t.local, peer); i >= 0 {
		t.local = slices.Concat(t.local[:i], t.local[i+1:])
	}
	t.changed.WakeAll()
}

// command handles the PONGs that WaitSubscribed waits for.
func (t *Topics) command(_ *engine.Pipe, peer *engine.Peer, name string, data []byte) error {
	if name != "PONG" || len(data) != 8 {
		return nil
	}
	n := binary.BigEndian.Uint64(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.peers[peer]; ok && n > known && n <= t.version {
		t.peers[peer] = n
		t.changed.WakeAll()
	}
	return nil
}

// Filter removes messages that match no subscription, or with invert those that match one.
func (t *Topics) Filter(b *engine.Batch, invert bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.trie.Root().Values()) == 0 || invert {
		b.Keep(func(m zmtp.WireMessage) bool {
			topic, _ := m.Next()
			return t.trie.Matches(topic) != invert
		})
	}
}

// Status is a snapshot of the publishers.
type Status struct {
	Publishers int
	Asked      bool           // a call of Wait has asked them
	Local      []*engine.Peer // those connected over inproc
}

// Status returns a snapshot of the publishers.
func (t *Topics) Status() Status {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return Status{len(t.peers), t.asked > 0, t.local}
}
