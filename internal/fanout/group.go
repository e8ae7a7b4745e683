package fanout

import (
	"encoding/binary"
	"maps"
	"slices"

	"clustermap/internal/queue"
)

// group is the peers that have subscribed to the same topics. They get the same
// messages: a message is matched once for a group, and put in one log, however many peers
// are in it. Many peers with few topics are the rule; a peer with many topics has a group
// of its own. All of a group is guarded by the subscriptions' mutex.
type group struct {
	shared bool   // may have several peers
	key    string // in subscriptions.groups, if shared
	at     int    // index in subscriptions.all
	topics map[string]struct{}
	bytes  int  // of the topics
	whole  bool // subscribed to everything

	members int           // peers that have these topics
	size    int           // of those, the ones that have not gone
	log     *queue.Log    // nil until there were two
	apart   []*Subscriber // those of size that do not follow the log

	mark  uint64      // the message that was matched last, so that none goes twice
	runs  []queue.Run // the present wire bytes for this group, unless it is whole
	count int         // messages in runs
}

// groupKey tells sets of topics apart.
func groupKey(topics map[string]struct{}) string {
	var key []byte
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		key = append(binary.AppendUvarint(key, uint64(len(topic))), topic...)
	}
	return string(key)
}

// groupOf returns the group of peers with these topics, which it takes over: one that
// is there, or a new one. The mutex must be held.
func (s *subscriptions) groupOf(topics map[string]struct{}, bytes int) *group {
	g := &group{topics: topics, bytes: bytes, at: len(s.all)}
	_, g.whole = topics[""]
	g.whole = g.whole && !s.invert
	if g.shared = len(topics) <= sharedTopics && bytes <= sharedBytes; g.shared {
		g.key = groupKey(topics)
		if there := s.groups[g.key]; there != nil {
			return there
		}
		if s.groups == nil {
			s.groups = map[string]*group{}
		}
		s.groups[g.key] = g
		s.most = max(s.most, len(s.groups))
	}
	s.all = append(s.all, g)
	for topic := range topics {
		s.trie.Add([]byte(topic), g)
	}
	return g
}

// removeGroup removes a group that has no peers any more. The mutex must be held.
func (s *subscriptions) removeGroup(g *group) {
	for topic := range g.topics {
		s.trie.Remove([]byte(topic), g)
	}
	if g.shared {
		delete(s.groups, g.key)
		s.shrink()
	}
	last := len(s.all) - 1
	s.all[g.at] = s.all[last]
	s.all[g.at].at = g.at
	s.all[last] = nil
	s.all = s.all[:last]
	if cap(s.all) > manyGroups && last < cap(s.all)/4 {
		s.all = slices.Clone(s.all)
	}
}

// shrink makes the tables anew if that is worth it. The mutex must be held.
func (s *subscriptions) shrink() {
	if s.most < manyGroups || len(s.groups) > s.most/4 {
		return
	}
	s.most = len(s.groups)
	groups := make(map[string]*group, s.most)
	maps.Copy(groups, s.groups)
	s.groups = groups
}

// regroup moves a peer to another group, or, with nil, out of its own. The mutex
// must be held.
func (s *subscriptions) regroup(q *Subscriber, to *group) {
	from := q.group
	if from != nil {
		if q.link != nil {
			q.excluded()
		}
		from.members--
	}
	q.group = to
	if to != nil {
		to.members++
		if q.link != nil {
			to.size++
			q.setApart()
		}
	}
	if from != nil && from.members == 0 {
		s.removeGroup(from)
	}
}

// excluded says that the group's messages are not for the peer any more. The mutex
// must be held.
func (q *Subscriber) excluded() {
	q.unsetApart()
	q.room = queue.HWM{}
	q.out.Unfollow(nil)
	q.group.size--
}

// setApart has a peer get each message of its group by itself, until it follows the
// log. The mutex must be held.
func (q *Subscriber) setApart() {
	if g := q.group; q.apart == 0 {
		q.room = queue.HWM{}
		g.apart = append(g.apart, q)
		q.apart = len(g.apart)
	}
}

// unsetApart is the end of that. The mutex must be held.
func (q *Subscriber) unsetApart() {
	if q.apart == 0 {
		return
	}
	g := q.group
	last := len(g.apart) - 1
	other := g.apart[last]
	g.apart[q.apart-1] = other
	other.apart = q.apart
	g.apart[last] = nil
	g.apart = g.apart[:last]
	q.apart = 0
}

// gather has peers that are apart and have no queued messages follow the log, if the
// group has several peers.
func (g *group) gather() {
	if g.size < 2 || len(g.apart) == 0 {
		return
	}
	if g.log == nil {
		g.log = new(queue.Log)
	}
	for i := len(g.apart) - 1; i >= 0; i-- {
		if q := g.apart[i]; !q.alone && !q.evicted && q.out.Follow(g.log) {
			q.unsetApart()
		}
	}
}

// sole returns the only peer of a group, or nil where there is none, or it has just
// gone.
func (g *group) sole() *Subscriber {
	switch {
	case len(g.apart) > 0:
		return g.apart[0]
	case g.log != nil:
		if o := g.log.First(); o != nil {
			return subscriberOf(o)
		}
	}
	return nil
}

// soleOf is sole of groups that have one peer together.
func soleOf(groups []*group) *Subscriber {
	for _, g := range groups {
		if g.size > 0 {
			return g.sole()
		}
	}
	return nil
}

// sizeOf returns how many peers are in groups.
func sizeOf(groups []*group) (n int) {
	for _, g := range groups {
		n += g.size
	}
	return n
}
