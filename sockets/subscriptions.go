package sockets

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"clustermap/internal/invariants"
	"clustermap/internal/topic"
	"clustermap/zmtp"
)

// subscriptions is who has subscribed to what.
type subscriptions struct {
	sync.Mutex
	trie    topic.Trie[*group]
	groups  map[string]*group // those that are shared, by key
	all     []*group
	invert  bool          // Options.InvertMatching: who did not subscribe is meant
	touched []*group      // scratch of matching
	mark    uint64        // number of the message being matched
	changed chan struct{} // closed when a subscription comes; nil while nobody waits
	only    *Peer         // the next message is for nobody else; see Options.XPubManualLastValue
}

// subscriber is a pipe's part in the subscriptions, guarded by their mutex.
type subscriber struct {
	peer  *Peer  // the connection, while it is attached
	group *group // of those with the same topics, as long as it has any
	alone bool   // never follows a log
	apart int    // index in group.apart, and 1; 0: is not there
	// evicted says that the connection was ended because the peer was too slow.
	// Nothing more is queued for it, and its queue no longer counts.
	evicted bool
	reading reading
	room    hwm // there is so much in the peer's queue; see pipe.hasRoomFor

	// With Options.XPubManual: what the peer subscribed to, in force or not.
	asked      map[string]struct{}
	askedBytes int
}

// run is a range of wire bytes.
type run struct{ start, end int }

const (
	// maxTopicBytes bounds the topics of one subscriber together.
	maxTopicBytes = 16 << 20
	// forgetBurst is how many topics of a peer that has gone are removed
	// before publishing goes on.
	forgetBurst = 256
)

// attach enters a peer that has no subscription yet.
func (s *subscriptions) attach(q *pipe, peer *Peer) {
	s.Lock()
	defer s.Unlock()
	q.sub.peer = peer
	q.sub.alone = q.inproc() || q.socket.conflates()
	s.regroup(q, s.groupOf(nil, 0))
	if s.invert {
		s.announce()
	}
}

// announce tells those who wait for a change. The mutex must be held.
func (s *subscriptions) announce() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// subscribe enters a topic of a peer; a topic that is there already is left
// alone. It reports whether nobody else had subscribed to it. Beyond limit
// topics, or too many bytes of them, it is an error. The mutex must be held.
func (s *subscriptions) subscribe(q *pipe, topic []byte, limit int) (first bool, err error) {
	g := q.sub.group
	if _, have := g.topics[string(topic)]; have {
		return false, nil
	}
	if len(g.topics) >= limit || g.bytes+len(topic) > maxTopicBytes {
		return false, ErrTooManySubscriptions
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
	s.announce()
	return first, nil
}

// cancel takes a topic of a peer out, however often it was subscribed to. It
// reports whether it was there, and whether nobody else has it. The mutex must
// be held.
func (s *subscriptions) cancel(q *pipe, topic []byte) (had, last bool) {
	g := q.sub.group
	if _, had = g.topics[string(topic)]; !had {
		return false, false
	}
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
		s.announce()
	}
	return true, !s.trie.Has(topic)
}

// forget takes out a peer that has gone, with all its topics.
func (s *subscriptions) forget(q *pipe) {
	s.Lock()
	defer s.Unlock()
	s.part(q)
	if g := q.sub.group; g != nil && !g.shared {
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
	q.sub = subscriber{}
	clear(s.touched[:cap(s.touched)]) // it may still name a group
}

// part says that a peer has gone, whose topics are still to be taken out. The
// mutex must be held.
func (s *subscriptions) part(q *pipe) {
	if q.sub.peer == nil {
		return
	}
	if s.only == q.sub.peer {
		s.only = nil
	}
	q.excluded()
	q.sub.peer = nil
}

// find returns the groups subscribed to a topic, each once. The slice is valid
// while the mutex is held.
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

// findOthers is find with invert: the groups not subscribed to the topic.
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

// except marks the groups subscribed to a topic.
func (s *subscriptions) except(topic []byte) {
	s.mark++
	for n := s.trie.Root(); n != nil; n = n.Next(&topic) {
		for _, g := range n.Values() {
			g.mark = s.mark
		}
	}
}

// audience returns who a message under a topic is for: n peers, those of the groups,
// or, if it is not nil, the one that is alone.
func (s *subscriptions) audience(topic []byte) (groups []*group, alone *pipe, n int) {
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

// chosen returns the peer that the next message is for alone, if it is in one of the
// groups.
func (s *subscriptions) chosen(groups []*group) *pipe {
	if q := s.only.pipe; slices.Contains(groups, q.sub.group) {
		return q
	}
	return nil
}

// sort finds the groups that subscribed to something in wire, and, for each that did
// not subscribe to everything, its runs. spans, if there are any, have the sizes of
// the messages. The slice is valid until reset, which must follow.
func (s *subscriptions) sort(wire []byte, spans []Span) []*group {
	if !s.invert {
		s.touched = append(s.touched, s.trie.Root().Values()...)
		if s.trie.Root().Leaf() {
			return s.touched
		}
	}
	for at, i := 0, 0; at < len(wire); i++ {
		end := -1
		switch {
		case spans == nil:
			end = messageEnd(wire, at)
		case i < len(spans):
			end = at + int(spans[i].End-spans[i].Start)
			invariants.Assert(end == messageEnd(wire, at), "a span is a message")
		}
		if end < 0 || end > len(wire) {
			invariants.Assert(false, "SendWire was given something else than whole messages")
			return s.touched
		}
		topic, _ := zmtp.Message(wire[at:end]).Next()
		if s.invert {
			s.except(topic)
			for _, g := range s.all {
				if g.mark != s.mark {
					s.touch(g, at, end)
				}
			}
			at = end
			continue
		}
		node := s.trie.Root().Next(&topic)
		if node == nil {
			at = end
			continue
		}
		s.mark++
		for ; node != nil; node = node.Next(&topic) {
			for _, g := range node.Values() {
				if g.whole || g.mark == s.mark {
					continue
				}
				g.mark = s.mark
				s.touch(g, at, end)
			}
		}
		at = end
	}
	return s.touched
}

// touch adds a message to a group's runs.
func (s *subscriptions) touch(g *group, at, end int) {
	if g.count == 0 {
		s.touched = append(s.touched, g)
	}
	g.touch(at, end)
}

// messageEnd returns where the message at byte at of wire ends, or -1 if it is
// not all there. Unlike a decoder it trusts its input, which is the caller's own
// or went through one.
func messageEnd(wire []byte, at int) int {
	for at+2 <= len(wire) {
		flags, size := wire[at], uint64(wire[at+1])
		if flags&zmtp.FlagLong == 0 {
			at += 2
		} else {
			if at+9 > len(wire) {
				return -1
			}
			size = binary.BigEndian.Uint64(wire[at+1:])
			at += 9
		}
		if size > uint64(len(wire)-at) {
			return -1
		}
		at += int(size)
		if flags&zmtp.FlagMore == 0 {
			return at
		}
	}
	return -1
}

// reset clears the scratch of sort.
func (s *subscriptions) reset() {
	for i, g := range s.touched {
		g.runs, g.count = g.runs[:0], 0
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
}
