package lastvalue

import (
	"strings"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"

	"github.com/google/btree"
)

// values keeps the last message of every topic, within bounds. It is guarded by
// Cache.mu.
//
// The messages are in the log of a store, under their topics. The topics are in
// order in a B-tree, for searches by prefix, and in a list by the time of their last
// update, which says what to forget next. Only a topic that comes or goes
// changes the tree: an update costs a look-up in the store, and no allocation.
type values struct {
	maxTopics, maxBytes int
	expiry              time.Duration

	// store has, for each topic, its last message in wire form. The sequence of
	// the record is the number of the topic's entry.
	store store.Map
	// entries[0] is no topic: it is where the list begins and ends, and holds the
	// topic that the tree is searched for.
	entries []entry
	free    []uint32 // numbers of entries that are not in use
	order   *btree.BTreeG[uint32]

	topicBytes int
	updates    uint64 // messages so far

	tooLarge, evicted, expired uint64
}

// entry is a topic that has a last message.
type entry struct {
	topic        string
	update       uint64        // which message it was, of all
	at           time.Duration // when it came, since the start of the cache
	older, newer uint32        // neighbours in the list
}

const (
	maxEntries = 1<<31 - 2
	maxMessage = 1 << 30 // bytes of a message that is kept: what the store can hold
	// topicCost is the memory of a topic beside its name and its message: its entry,
	// its places in tree and index, and what the allocator rounds up.
	topicCost  = 112
	treeDegree = 32
)

func (v *values) init(o Options) {
	v.maxTopics, v.maxBytes, v.expiry = o.MaxTopics, o.MaxBytes, o.Expiry
	v.store.SetUp(store.Options{})
	v.entries = make([]entry, 1)
	v.order = btree.NewG(treeDegree, func(a, b uint32) bool { return v.entries[a].topic < v.entries[b].topic })
}

// len returns the number of topics.
func (v *values) len() int { return v.order.Len() }

// bytes returns what counts for MaxBytes.
func (v *values) bytes() int { return v.store.LiveBytes() + v.topicBytes + topicCost*v.len() }

// put makes a message, in wire form, the last one of its topic.
func (v *values) put(topic, message []byte, now time.Duration) {
	v.updates++
	n := v.find(topic)
	if len(message) > maxMessage || kvmsg.RecordSize(len(topic), 0, 0, len(message))+len(topic)+topicCost > v.maxBytes {
		v.tooLarge++
		if n != 0 {
			v.drop(n)
		}
		return
	}
	if n == 0 {
		n = v.add(topic)
	} else {
		v.unlink(n)
	}
	v.store.Put(topic, int64(n), nil, nil, message)
	e := &v.entries[n]
	e.update, e.at = v.updates, now
	v.link(n)
	for v.len() > v.maxTopics || v.bytes() > v.maxBytes {
		v.drop(v.entries[0].newer)
		v.evicted++
	}
}

// find returns the number of a topic's entry, or 0.
func (v *values) find(topic []byte) (n uint32) {
	v.store.View(topic, func(r kvmsg.Record) { n = uint32(r.Seq()) })
	return n
}

// add enters a new topic.
func (v *values) add(topic []byte) (n uint32) {
	if last := len(v.free) - 1; last >= 0 {
		n, v.free = v.free[last], v.free[:last]
	} else {
		n = uint32(len(v.entries))
		v.entries = append(v.entries, entry{})
	}
	v.entries[n].topic = string(topic)
	v.topicBytes += len(topic)
	v.order.ReplaceOrInsert(n)
	return n
}

// drop forgets a topic.
func (v *values) drop(n uint32) {
	v.order.Delete(n)
	v.unlink(n)
	topic := []byte(v.entries[n].topic)
	v.topicBytes -= len(topic)
	v.store.Delete(kvmsg.HashKey(topic), topic)
	v.entries[n] = entry{}
	v.free = append(v.free, n)
}

// link puts a topic at the end of the list, as the one updated last.
func (v *values) link(n uint32) {
	head, e := &v.entries[0], &v.entries[n]
	e.older, e.newer = head.older, 0
	v.entries[head.older].newer = n
	head.older = n
}

func (v *values) unlink(n uint32) {
	e := &v.entries[n]
	v.entries[e.older].newer = e.newer
	v.entries[e.newer].older = e.older
}

// expire forgets the topics whose last message is too old.
func (v *values) expire(now time.Duration) {
	if v.expiry == 0 {
		return
	}
	for {
		n := v.entries[0].newer
		if n == 0 || now-v.entries[n].at < v.expiry {
			return
		}
		v.drop(n)
		v.expired++
	}
}

// ascend calls f for the topics that begin with prefix, in order, from a given one
// on, until f returns false. f must not change values.
func (v *values) ascend(prefix, from string, f func(e *entry) bool) {
	v.entries[0].topic = max(prefix, from)
	v.order.AscendGreaterOrEqual(0, func(n uint32) bool {
		e := &v.entries[n]
		return strings.HasPrefix(e.topic, prefix) && f(e)
	})
	v.entries[0].topic = ""
}

// append appends the last message of a topic, in wire form.
func (v *values) append(dst, topic []byte) []byte {
	v.store.View(topic, func(r kvmsg.Record) { dst = append(dst, r.Value()...) })
	return dst
}

// tidy gives back memory that overwritten and forgotten messages have left. It
// does so little at a time.
func (v *values) tidy() {
	for range 4 {
		if !v.store.Tidy(1 << 20) {
			return
		}
	}
}
