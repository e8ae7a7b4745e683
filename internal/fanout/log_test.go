package fanout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"clustermap/internal/queue"
	"clustermap/internal/testenv"
)

// logModel is a publisher whose subscribers' queues are computed by hand.
type logModel struct {
	t      *testing.T
	rand   *rand.Rand
	pub    *Publisher
	mark   int
	block  bool
	fickle int // how often a subscription changes, in percent
	lender *testenv.Lender
	peers  []*modelPeer
	sent   int
}

// modelPeer is a subscriber, and the messages that it is to get.
type modelPeer struct {
	sub    *Subscriber
	topics map[string]bool
	want   []byte
	count  int // messages in want
	drops  uint64
}

// TestPubLog: with any actions of subscribers, each gets the messages sent while it was
// subscribed and had room, in order and once; the size of its queue is known; and lent
// bytes are released in the end.
func TestPubLog(t *testing.T) {
	t.Parallel()
	private := 0
	courses := uint64(300)
	if testing.Short() {
		courses /= 5
	}
	for seed := range courses {
		r := rand.New(rand.NewPCG(seed, 7))
		m := &logModel{t: t, rand: r, mark: 1 + r.IntN(40), block: seed%2 == 0, fickle: 4 + 30*int(seed/2%2), lender: newLender()}
		policy := Drop
		if m.block {
			policy = Block
		}
		n := 1 + r.IntN(5)
		pub, pipes := fanned(t, n, Settings{Limits: unlimited(m.mark), Policy: policy})
		m.pub = pub
		for _, q := range pipes {
			m.peers = append(m.peers, &modelPeer{sub: q, topics: map[string]bool{"": true}})
		}
		for range 400 {
			m.step()
		}
		for _, p := range m.peers {
			m.drain(p)
		}
		if n := m.lender.Refs.Load(); n != 0 {
			t.Errorf("%d references to what was lent are left", n)
		}
		for _, g := range pub.all {
			if !g.shared {
				private++
			}
		}
		m.groups()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if private == 0 {
		t.Error("no peer had so many topics that it was alone in its group")
	}
}

// step takes a random action.
func (m *logModel) step() {
	p := m.peers[m.rand.IntN(len(m.peers))]
	switch k := m.rand.IntN(100); {
	case k < 50:
		body := m.body()
		m.send(1, wire(string(body)), func() error { return send(m.pub, body) })
	case k < 60:
		bodies := make([][]byte, 1+m.rand.IntN(5))
		var data []byte
		for i := range bodies {
			bodies[i] = m.body()
			data = append(data, wire(string(bodies[i]))...)
		}
		m.send(len(bodies), data, func() error {
			_, err := sendBatch(m.pub, bodies)
			return err
		})
	case k < 70:
		body := m.body()
		m.send(1, wire(string(body)), func() error { return sendWire(m.pub, wire(string(body)), 1, m.lender) })
	case k < 98-m.fickle:
		m.drain(p)
	case k < 98:
		m.subscribe(p, m.topic()[:m.rand.IntN(4)])
	default: // its connection ends, and another one comes
		m.pub.Detach(p.sub, nil)
		p.sub.out.Discard()
		p.drops += uint64(p.count)
		p.want, p.count = nil, 0
		p.sub = attach(m.pub, p.sub.out)
		p.topics = map[string]bool{}
		m.subscribe(p, "")
	}
	for i, p := range m.peers {
		if messages, data := waiting(p.sub); messages != p.count || data != len(p.want) {
			m.t.Fatalf("peer %d waits for %d messages of %d bytes, want %d of %d", i, messages, data, p.count, len(p.want))
		}
		out := p.sub.out.Status()
		if p.count > 0 && out.Idle {
			m.t.Fatalf("%d messages wait for peer %d, whose writer sleeps", p.count, i)
		}
		if out.Drops != p.drops {
			m.t.Fatalf("%d messages for peer %d were dropped, want %d", out.Drops, i, p.drops)
		}
	}
}

// body is a message, the number of which tells it from others.
func (m *logModel) body() []byte {
	m.sent++
	size := m.rand.IntN(200)
	if m.rand.IntN(10) == 0 {
		size = queue.LendFrom + m.rand.IntN(40<<10)
	}
	b := append([]byte(m.topic()), make([]byte, size)...)
	return binary.BigEndian.AppendUint64(b, uint64(m.sent))
}

// topic returns three letters.
func (m *logModel) topic() string {
	return string([]byte{"ab"[m.rand.IntN(2)], "abc"[m.rand.IntN(3)], "abcdef"[m.rand.IntN(6)]})
}

// send publishes messages, or none of them if a queue is full and the policy is to block.
func (m *logModel) send(messages int, data []byte, send func() error) {
	parts := map[*modelPeer][]byte{}
	counts := map[*modelPeer]int{}
	for at := 0; at < len(data); {
		end := queue.MessageEnd(data, at)
		head := 2
		if data[at]&2 != 0 { // a long frame
			head = 9
		}
		for _, p := range m.peers {
			if p.wants(data[at+head:]) {
				parts[p] = append(parts[p], data[at:end]...)
				counts[p]++
			}
		}
		at = end
	}
	full := false
	for p := range parts {
		full = full || p.count >= m.mark
	}
	err := send()
	if m.block && full {
		if !errors.Is(err, queue.ErrWouldBlock) {
			m.t.Fatalf("a peer is full: %v", err)
		}
		return
	}
	must(m.t, err)
	for p, part := range parts {
		if p.count >= m.mark {
			p.drops += uint64(counts[p])
			continue
		}
		p.want = append(p.want, part...)
		p.count += counts[p]
	}
}

func (m *logModel) drain(p *modelPeer) {
	if p.count == 0 {
		return
	}
	if got := drain(p.sub); !bytes.Equal(got, p.want) {
		m.t.Fatalf("%d bytes were taken, which are not the %d that were sent", len(got), len(p.want))
	}
	p.want, p.count = nil, 0
	if m.rand.IntN(4) > 0 { // most writers have nothing to do then until they are woken
		p.sub.out.Launch(func() {}, queue.Direct{}, false)
	}
}

// wants says that a peer has subscribed to a prefix of a message.
func (p *modelPeer) wants(message []byte) bool {
	for topic := range p.topics {
		if bytes.HasPrefix(message, []byte(topic)) {
			return true
		}
	}
	return false
}

// subscribe adds a topic of a peer, or takes it out if it was there.
func (m *logModel) subscribe(p *modelPeer, topic string) {
	m.pub.Lock()
	defer m.pub.Unlock()
	alone := true
	for _, other := range m.peers {
		alone = alone && (other == p || !other.topics[topic])
	}
	if p.topics[topic] {
		if had, last := m.pub.cancel(p.sub, []byte(topic)); !had || last != alone {
			m.t.Fatalf("%q is cancelled: had %v, last %v, want true, %v", topic, had, last, alone)
		}
		delete(p.topics, topic)
		return
	}
	first, err := m.pub.subscribe(p.sub, []byte(topic), queue.Unbounded)
	must(m.t, err)
	if first != alone {
		m.t.Fatalf("%q is subscribed to: first %v, want %v", topic, first, alone)
	}
	p.topics[topic] = true
}

// groups checks that peers with the same few topics are in one group, and that there
// are no others.
func (m *logModel) groups() {
	used := map[*group]string{}
	for _, p := range m.peers {
		g := p.sub.group
		topics := fmt.Sprintf("%q", slices.Sorted(maps.Keys(p.topics)))
		if was, have := used[g]; have && was != topics {
			m.t.Errorf("%s and %s are in one group", was, topics)
		}
		used[g] = topics
		if len(p.topics) != len(g.topics) {
			m.t.Errorf("a group has %d topics, its peer %d", len(g.topics), len(p.topics))
		}
	}
	if n := len(m.pub.all); n != len(used) {
		m.t.Errorf("there are %d groups, want %d", n, len(used))
	}
	sets := map[string]*group{}
	for g, topics := range used {
		if other := sets[topics]; other != nil && other.shared && g.shared {
			m.t.Errorf("two groups have %s", topics)
		}
		sets[topics] = g
	}
}
