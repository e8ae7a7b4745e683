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
	trie     trie[*pipe]
	invert   bool          // Options.InvertMatching: who did not subscribe is meant
	attached []*pipe       // all connected peers, kept with invert only
	apart    []*pipe       // who subscribed to everything, but does not follow the log
	touched  []*pipe       // scratch of matching
	mark     uint64        // number of the message being matched
	changed  chan struct{} // closed when a subscription comes; nil while nobody waits
	only     *Peer         // the next message is for nobody else; see Options.XPubManualLastValue
}

// subscriber is a pipe's part in the subscriptions, guarded by their mutex.
type subscriber struct {
	peer   *Peer // the connection, while it is attached
	at     int   // index in subscriptions.attached
	topics map[string]struct{}
	octets int    // of the topics
	mark   uint64 // the message that was matched last, so that none goes twice
	all    bool   // subscribed to everything
	alone  bool   // never follows the publisher's log
	apart  int    // index in subscriptions.apart, and 1; 0: is not there
	runs   []run  // what of the present wire octets is for this peer
	count  int    // messages in runs
	room   hwm    // there is so much in the peer's queue; see pipe.hasRoomFor

	// With Options.XPubManual: what the peer subscribed to, in force or not.
	asked       map[string]struct{}
	askedOctets int
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

// attach enters a peer that has no subscription yet.
func (s *subscriptions) attach(q *pipe, peer *Peer) {
	s.Lock()
	defer s.Unlock()
	q.sub.peer = peer
	q.sub.alone = q.inproc() || q.socket.conflates()
	if s.invert {
		q.sub.at = len(s.attached)
		s.attached = append(s.attached, q)
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
// topics, or too many octets of them, it is an error. The mutex must be held.
func (s *subscriptions) subscribe(q *pipe, topic []byte, limit int) (first bool, err error) {
	if _, have := q.sub.topics[string(topic)]; have {
		return false, nil
	}
	if len(q.sub.topics) >= limit || q.sub.octets+len(topic) > maxTopicOctets {
		return false, ErrTooManySubscriptions
	}
	if q.sub.topics == nil {
		q.sub.topics = map[string]struct{}{}
	}
	before := s.trie.size
	q.sub.topics[string(topic)] = struct{}{}
	q.sub.octets += len(topic)
	if len(topic) == 0 && !s.invert {
		q.sub.all = true
		s.setApart(q)
	}
	s.trie.add(topic, q)
	s.announce()
	return s.trie.size > before, nil
}

// cancel takes a topic of a peer out, however often it was subscribed to. It
// reports whether it was there, and whether nobody else has it. The mutex must
// be held.
func (s *subscriptions) cancel(q *pipe, topic []byte) (had, last bool) {
	if _, had = q.sub.topics[string(topic)]; !had {
		return false, false
	}
	before := s.trie.size
	delete(q.sub.topics, string(topic))
	q.sub.octets -= len(topic)
	if len(topic) == 0 {
		q.sub.all = false
		s.exclude(q)
	}
	s.trie.remove(topic, q)
	if s.invert {
		s.announce()
	}
	return true, s.trie.size < before
}

// forget takes out a peer that has gone, with all its topics.
func (s *subscriptions) forget(q *pipe) {
	s.Lock()
	defer s.Unlock()
	s.part(q)
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

// part says that a peer has gone, whose topics are still to be taken out. The
// mutex must be held.
func (s *subscriptions) part(q *pipe) {
	if q.sub.peer == nil {
		return
	}
	if s.only == q.sub.peer {
		s.only = nil
	}
	q.sub.peer = nil
	s.exclude(q)
	if s.invert {
		last := len(s.attached) - 1
		s.attached[q.sub.at] = s.attached[last]
		s.attached[q.sub.at].sub.at = q.sub.at
		s.attached[last] = nil
		s.attached = s.attached[:last]
	}
}

// setApart has a peer that subscribed to everything get each message alone, until
// it follows the log. The mutex must be held.
func (s *subscriptions) setApart(q *pipe) {
	if q.sub.apart == 0 {
		q.sub.room = hwm{}
		s.apart = append(s.apart, q)
		q.sub.apart = len(s.apart)
	}
}

// unsetApart takes a peer out of those that get each message alone. The mutex must
// be held.
func (s *subscriptions) unsetApart(q *pipe) {
	if q.sub.apart == 0 {
		return
	}
	last := len(s.apart) - 1
	other := s.apart[last]
	s.apart[q.sub.apart-1] = other
	other.sub.apart = q.sub.apart
	s.apart[last] = nil
	s.apart = s.apart[:last]
	q.sub.apart = 0
}

// exclude says that a peer is not to get everything any more. The mutex must be
// held.
func (s *subscriptions) exclude(q *pipe) {
	s.unsetApart(q)
	q.sub.room = hwm{}
	q.out.mu.Lock()
	q.out.unfollow(nil)
	q.out.mu.Unlock()
}

// find returns the peers subscribed to a topic, each once, without those that
// subscribed to everything. The slice is valid while the mutex is held.
func (s *subscriptions) find(topic []byte) []*pipe {
	if s.invert {
		return s.findOthers(topic)
	}
	if len(s.trie.root.heads) == 0 {
		return nil
	}
	s.mark++
	found := s.touched[:0]
	for n := s.trie.root.next(&topic); n != nil; n = n.next(&topic) {
		for _, q := range n.values {
			if !q.sub.all && q.sub.mark != s.mark {
				q.sub.mark = s.mark
				found = append(found, q)
			}
		}
	}
	s.touched = found[:0]
	return found
}

// findOthers is find with invert: the peers not subscribed to the topic.
func (s *subscriptions) findOthers(topic []byte) []*pipe {
	s.except(topic)
	found := s.touched[:0]
	for _, q := range s.attached {
		if q.sub.mark != s.mark {
			found = append(found, q)
		}
	}
	s.touched = found[:0]
	return found
}

// except marks the peers subscribed to a topic.
func (s *subscriptions) except(topic []byte) {
	s.mark++
	for n := &s.trie.root; n != nil; n = n.next(&topic) {
		for _, q := range n.values {
			q.sub.mark = s.mark
		}
	}
}

// restrict leaves of peers the one that the next message is for.
func (s *subscriptions) restrict(peers []*pipe) []*pipe {
	for i, q := range peers {
		if q.sub.peer == s.only {
			return peers[i : i+1]
		}
	}
	return nil
}

// everything returns the peers that get all there is.
func (s *subscriptions) everything() []*pipe {
	if s.invert {
		return nil
	}
	return s.trie.root.values
}

// sort finds, for every peer that did not subscribe to everything, the runs of
// wire that it subscribed to, and lists those peers in touched. spans, if there
// are any, have the sizes of the messages.
func (s *subscriptions) sort(wire []byte, spans []Span) {
	if len(s.trie.root.heads) == 0 && !s.invert {
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
		if s.invert {
			s.except(topic)
			for _, q := range s.attached {
				if q.sub.mark != s.mark {
					s.touch(q, at, end)
				}
			}
			at = end
			continue
		}
		node := s.trie.root.next(&topic)
		if node == nil {
			at = end
			continue
		}
		s.mark++
		for ; node != nil; node = node.next(&topic) {
			for _, q := range node.values {
				if q.sub.all || q.sub.mark == s.mark {
					continue
				}
				q.sub.mark = s.mark
				s.touch(q, at, end)
			}
		}
		at = end
	}
}

// touch adds a message to a peer's runs.
func (s *subscriptions) touch(q *pipe, at, end int) {
	sub := &q.sub
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
	for _, peers := range [...][]*pipe{all, s.touched} {
		for _, q := range peers {
			if !q.out.hasRoom() {
				return q
			}
		}
	}
	return nil
}

// untouch drops what is not for the one that the next messages are for.
func (s *subscriptions) untouch() {
	kept := s.touched[:0]
	for _, q := range s.touched {
		if q.sub.peer == s.only {
			kept = append(kept, q)
		} else {
			q.sub.runs, q.sub.count = q.sub.runs[:0], 0
		}
	}
	clear(s.touched[len(kept):])
	s.touched = kept
}

// reset clears the scratch of sort.
func (s *subscriptions) reset() {
	for i, q := range s.touched {
		q.sub.runs, q.sub.count = q.sub.runs[:0], 0
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
}
