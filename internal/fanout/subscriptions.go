package fanout

import (
	"maps"
	"slices"
	"sync"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
	"clustermap/internal/queue"
	"clustermap/internal/topic"
	"clustermap/zmtp"
)

// subscriptions records the subscriptions of all peers.
type subscriptions struct {
	sync.Mutex
	trie    topic.Trie[*group]
	groups  map[string]*group // the groups that are shared, by key
	all     []*group
	invert  bool        // Settings.Invert
	touched []*group    // scratch of matching
	mark    uint64      // number of the message being matched
	alike   alike       // scratch of sort
	changed queue.Gate  // for peers that subscribe
	only    *Subscriber // the only peer to get the next message; see Settings.LastValue
	peers   map[*Subscriber]struct{}
	most    int // of groups, since it was made
	max     int // Settings.MaxBytes
	used    int // the sum of Subscriber.bytes
}

// setInvert sets whether messages go to the peers that have not subscribed. The mutex
// must be held, unless the socket is new.
func (s *subscriptions) setInvert(invert bool) {
	s.invert = invert
	for _, g := range s.all {
		_, g.whole = g.topics[""]
		g.whole = g.whole && !invert
	}
}

// subscribe adds a topic of a peer, unless the peer has it already. It reports
// whether no other peer has it. It returns an error if the peer has more than
// limit topics, too many bytes of them, or too much of the memory of all peers. The mutex
// must be held.
func (s *subscriptions) subscribe(q *Subscriber, topic []byte, limit int) (first bool, err error) {
	g := q.group
	if _, have := g.topics[string(topic)]; have {
		return false, nil
	}
	if len(g.topics) >= limit || g.bytes+len(topic) > maxTopicBytes {
		return false, ErrTooManySubscriptions
	}
	if err := s.occupy(q, len(topic), limit); err != nil {
		return false, err
	}
	first = !s.trie.Has(topic)
	if g.shared {
		topics := maps.Clone(g.topics)
		if topics == nil {
			topics = map[string]struct{}{}
		}
		topics[string(topic)] = struct{}{}
		s.regroup(q, s.groupOf(topics, g.bytes+len(topic)))
	} else {
		g.topics[string(topic)] = struct{}{}
		g.bytes += len(topic)
		g.whole = g.whole || len(topic) == 0 && !s.invert
		s.trie.Add(topic, g)
	}
	s.changed.WakeAll()
	return first, nil
}

// cancel removes a topic of a peer, however often the peer has subscribed to
// it. It reports whether the peer had it, and whether no other peer has it. The
// mutex must be held.
func (s *subscriptions) cancel(q *Subscriber, topic []byte) (had, last bool) {
	g := q.group
	if _, had = g.topics[string(topic)]; !had {
		return false, false
	}
	s.count(q, -occupied(1, len(topic)))
	if g.shared {
		topics := maps.Clone(g.topics)
		delete(topics, string(topic))
		s.regroup(q, s.groupOf(topics, g.bytes-len(topic)))
	} else {
		delete(g.topics, string(topic))
		g.bytes -= len(topic)
		g.whole = g.whole && len(topic) > 0
		s.trie.Remove(topic, g)
	}
	if s.invert {
		s.changed.WakeAll()
	}
	return true, !s.trie.Has(topic)
}

// occupied returns the memory of topics with a number of bytes, at most.
func occupied(topics, bytes int) int { return topicCost*topics + topicCopies*bytes }

// occupy counts another topic of a peer. At the limit it ends the connection of the peer
// that has most, unless that is this one: then it returns an error. The application's own
// subscriptions, with the limit queue.Unbounded, are only counted. The mutex must be held.
func (s *subscriptions) occupy(q *Subscriber, size, limit int) error {
	cost := occupied(1, size)
	for limit != queue.Unbounded && (q.refused || s.used+cost > s.max) {
		worst := q
		if !q.refused {
			worst = queue.Heaviest(maps.Keys(s.peers), func(p *Subscriber) (*queue.Client, int) {
				if p == q {
					return p.client, p.bytes + cost
				}
				return p.client, p.bytes
			})
		}
		if worst == q {
			return ErrTooManySubscriptions
		}
		if worst.link != nil {
			worst.link.Disconnect(ErrTooManySubscriptions)
		}
		s.count(worst, -worst.bytes)
		worst.refused = true
	}
	s.count(q, cost)
	return nil
}

// count changes what a peer's topics occupy. The mutex must be held.
func (s *subscriptions) count(q *Subscriber, bytes int) {
	if !q.refused {
		q.bytes += bytes
		s.used += bytes
	}
}

// forget removes a peer that has gone, with all its topics.
func (s *subscriptions) forget(q *Subscriber) {
	s.Lock()
	defer s.Unlock()
	s.part(q)
	if g := q.group; g != nil && !g.shared {
		n := 0
		for topic := range g.topics {
			s.trie.Remove([]byte(topic), g)
			if n++; n%forgetBurst == 0 {
				s.Unlock()
				s.Lock()
			}
		}
		g.topics = nil
	}
	s.regroup(q, nil)
	s.count(q, -q.bytes)
	delete(s.peers, q)
	clear(s.touched[:cap(s.touched)]) // it may still refer to a group
	clear(s.alike.groups[:cap(s.alike.groups)])
}

// part records that a peer has gone whose topics have not been removed yet. The
// mutex must be held.
func (s *subscriptions) part(q *Subscriber) {
	if q.link == nil {
		return
	}
	if s.only == q {
		s.only = nil
	}
	q.excluded()
	q.link = nil
}

// find returns the groups that have subscribed to a topic, each once. The slice
// is valid while the mutex is held.
func (s *subscriptions) find(topic []byte) []*group {
	if s.invert {
		return s.findOthers(topic)
	}
	if s.trie.Root().Leaf() {
		return s.trie.Root().Values()
	}
	s.mark++
	found := s.touched[:0]
	for n := s.trie.Root(); n != nil; n = n.Next(&topic) {
		for _, g := range n.Values() {
			if g.mark != s.mark {
				g.mark = s.mark
				found = append(found, g)
			}
		}
	}
	s.touched = found[:0]
	return found
}

// findOthers is find with invert: it returns the groups that have not
// subscribed to the topic.
func (s *subscriptions) findOthers(topic []byte) []*group {
	s.except(topic)
	found := s.touched[:0]
	for _, g := range s.all {
		if g.mark != s.mark {
			found = append(found, g)
		}
	}
	s.touched = found[:0]
	return found
}

// except marks the groups that have subscribed to a topic.
func (s *subscriptions) except(topic []byte) {
	s.mark++
	for n := s.trie.Root(); n != nil; n = n.Next(&topic) {
		for _, g := range n.Values() {
			g.mark = s.mark
		}
	}
}

// audience returns the peers to which a message with the given topic goes.
// There are n of them: those of the groups or, if it is not nil, only the peer
// alone.
func (s *subscriptions) audience(topic []byte) (groups []*group, alone *Subscriber, n int) {
	groups = s.find(topic)
	if s.only != nil {
		if alone = s.chosen(groups); alone == nil {
			return nil, nil, 0
		}
		return nil, alone, 1
	}
	if n = sizeOf(groups); n == 1 {
		alone = soleOf(groups)
	}
	return groups, alone, n
}

// chosen returns the only peer to get the next message, if it is in one of the
// groups.
func (s *subscriptions) chosen(groups []*group) *Subscriber {
	if slices.Contains(groups, s.only.group) {
		return s.only
	}
	return nil
}

// sort finds the groups that have subscribed to messages in wire and, for each
// that has not subscribed to everything, the runs of these messages. If spans
// is not nil, it holds the sizes of the messages. The slice is valid until
// reset, which must follow.
func (s *subscriptions) sort(wire []byte, spans []buf.Span) []*group {
	if !s.invert {
		s.touched = append(s.touched, s.trie.Root().Values()...)
		if s.trie.Root().Leaf() {
			return s.touched
		}
	}
	at, alike := 0, &s.alike
	for i := 0; at < len(wire); i++ {
		end := -1
		switch {
		case spans == nil:
			end = queue.MessageEnd(wire, at)
		case i < len(spans):
			end = at + int(spans[i].End-spans[i].Start)
			if invariants.Enabled { // else Go would still compute the arguments of Assert
				invariants.Assert(end == queue.MessageEnd(wire, at), "a span is a message")
			}
		}
		if end < 0 || end > len(wire) {
			invariants.Assert(false, "SendWire was called with bytes that are not complete messages")
			break
		}
		if alike.topic != nil {
			if alike.has(wire[at:end]) {
				alike.count++
				at = end
				continue
			}
			alike.end(s, at)
		}
		topic, _ := zmtp.WireMessage(wire[at:end]).Next()
		if s.invert {
			s.except(topic)
			for _, g := range s.all {
				if g.mark != s.mark {
					s.touch(g, at, end, 1)
				}
			}
			at = end
			continue
		}
		s.mark++
		remember := alike.pause == 0
		if !remember {
			alike.pause--
		}
		rest := topic
		for node := s.trie.Root().Next(&rest); node != nil; node = node.Next(&rest) {
			for _, g := range node.Values() {
				if g.whole || g.mark == s.mark {
					continue
				}
				g.mark = s.mark
				if remember {
					alike.groups = append(alike.groups, g)
				}
				s.touch(g, at, end, 1)
			}
		}
		at = end
		if remember {
			n, ok := s.trie.Decisive(topic)
			alike.begin(topic[:n], ok, at)
		}
	}
	if alike.topic != nil {
		alike.end(s, at)
	}
	return s.touched
}

// touch adds messages to the runs of a group.
func (s *subscriptions) touch(g *group, at, end, count int) {
	if g.count == 0 {
		s.touched = append(s.touched, g)
	}
	g.count += count
	if last := len(g.runs) - 1; last >= 0 && g.runs[last].End == at {
		g.runs[last].End = end
	} else {
		g.runs = append(g.runs, queue.Run{Start: at, End: end})
	}
}

// reset clears the scratch memory of sort.
func (s *subscriptions) reset() {
	for i, g := range s.touched {
		g.runs, g.count = g.runs[:0], 0
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
}
