package sockets

import (
	"encoding/binary"
	"sync"

	"clustermap/internal/invariants"
	"clustermap/zmtp"
)

// subscriptions is who has subscribed to what.
type subscriptions struct {
	sync.Mutex
	trie    trie[*pipe]
	touched []*pipe       // scratch of matching
	mark    uint64        // number of the message being matched
	changed chan struct{} // closed when a subscription comes; nil while nobody waits
}

// subscriber is a pipe's part in the subscriptions, guarded by their mutex.
type subscriber struct {
	topics map[string]struct{}
	octets int    // of the topics
	mark   uint64 // the message that was matched last, so that none goes twice
	all    bool   // subscribed to everything
	runs   []run  // what of the present wire octets is for this peer
	count  int    // messages in runs
}

// run is a range of wire octets.
type run struct{ start, end int }

const (
	// maxTopicOctets bounds the topics of one subscriber together.
	maxTopicOctets = 16 << 20
	// forgetBurst is how many topics of a peer that has gone are removed
	// before publishing goes on.
	forgetBurst = 256
)

// subscribe enters a topic of a peer; a topic that is there already is left
// alone. Beyond limit topics, or too many octets of them, it is an error.
func (s *subscriptions) subscribe(q *pipe, topic []byte, limit int) error {
	s.Lock()
	defer s.Unlock()
	if _, have := q.sub.topics[string(topic)]; have {
		return nil
	}
	if len(q.sub.topics) >= limit || q.sub.octets+len(topic) > maxTopicOctets {
		return ErrTooManySubscriptions
	}
	if q.sub.topics == nil {
		q.sub.topics = map[string]struct{}{}
	}
	q.sub.topics[string(topic)] = struct{}{}
	q.sub.octets += len(topic)
	q.sub.all = q.sub.all || len(topic) == 0
	s.trie.add(topic, q)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return nil
}

// cancel takes a topic of a peer out, however often it was subscribed to.
func (s *subscriptions) cancel(q *pipe, topic []byte) {
	s.Lock()
	defer s.Unlock()
	if _, have := q.sub.topics[string(topic)]; !have {
		return
	}
	delete(q.sub.topics, string(topic))
	q.sub.octets -= len(topic)
	q.sub.all = q.sub.all && len(topic) > 0
	s.trie.remove(topic, q)
}

// forget takes out all topics of a peer that has gone.
func (s *subscriptions) forget(q *pipe) {
	s.Lock()
	defer s.Unlock()
	n := 0
	for topic := range q.sub.topics {
		s.trie.remove([]byte(topic), q)
		if n++; n%forgetBurst == 0 {
			s.Unlock()
			s.Lock()
		}
	}
	q.sub = subscriber{}
	clear(s.touched[:cap(s.touched)]) // it may still name q
}

// find returns the peers subscribed to a topic, each once. The slice is valid
// while the mutex is held.
func (s *subscriptions) find(topic []byte) []*pipe {
	if len(s.trie.root.heads) == 0 {
		return s.trie.root.values
	}
	s.mark++
	found := s.touched[:0]
	for n := &s.trie.root; n != nil; n = n.next(&topic) {
		for _, q := range n.values {
			if q.sub.mark != s.mark {
				q.sub.mark = s.mark
				found = append(found, q)
			}
		}
	}
	s.touched = found[:0]
	return found
}

// sort finds, for every peer that did not subscribe to everything, the runs of
// wire that it subscribed to, and lists those peers in touched. spans, if there
// are any, have the sizes of the messages.
func (s *subscriptions) sort(wire []byte, spans []Span) {
	if len(s.trie.root.heads) == 0 {
		return
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
			return
		}
		topic, _ := zmtp.Message(wire[at:end]).Next()
		node := s.trie.root.next(&topic)
		if node == nil {
			at = end
			continue
		}
		s.mark++
		for ; node != nil; node = node.next(&topic) {
			for _, q := range node.values {
				sub := &q.sub
				if sub.all || sub.mark == s.mark {
					continue
				}
				sub.mark = s.mark
				if sub.count == 0 {
					s.touched = append(s.touched, q)
				}
				sub.count++
				if last := len(sub.runs) - 1; last >= 0 && sub.runs[last].end == at {
					sub.runs[last].end = end
				} else {
					sub.runs = append(sub.runs, run{at, end})
				}
			}
		}
		at = end
	}
}

// messageEnd returns where the message at octet at of wire ends, or -1 if it is
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

// full returns a peer without room among all and the touched.
func (s *subscriptions) full(all []*pipe) *pipe {
	for _, peers := range [2][]*pipe{all, s.touched} {
		for _, q := range peers {
			if !q.out.hasRoom() {
				return q
			}
		}
	}
	return nil
}

// reset clears the scratch of sort.
func (s *subscriptions) reset() {
	for i, q := range s.touched {
		q.sub.runs, q.sub.count = q.sub.runs[:0], 0
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
}
