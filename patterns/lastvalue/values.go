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
// The messages are in the log of a store, under their topics. The topics are in a
// B-tree for searches by prefix, and in a list in the order of their last updates.
// Updates do not change the tree: they cost a look-up in the store and no allocation.
type values struct {
	maxTopics, maxBytes int
	expiry              time.Duration

	// store has the last message of each topic in wire form. The sequence of a
	// record is the index of the topic's entry.
	store store.Map
	// entries[0] is the head of the list, and the key for searches of the tree.
	entries []entry
	free    []uint32 // indexes of unused entries
	order   *btree.BTreeG[uint32]

	topicBytes int
	updates    uint64 // messages so far

	tooLarge, evicted, expired uint64
}

// entry is a topic with a last message.
type entry struct {
	topic        string
	update       uint64        // number of the message
	at           time.Duration // when it arrived, since the start of the cache
	older, newer uint32        // neighbours in the list
}

func (v *values) init(o Options) {
	v.maxTopics, v.maxBytes, v.expiry = o.MaxTopics, o.MaxBytes, o.Expiry
	v.store.SetUp(store.Options{})
	v.entries = make([]entry, 1)
	v.order = btree.NewG(treeDegree, func(a, b uint32) bool { return v.entries[a].topic < v.entries[b].topic })
}

func (v *values) len() int { return v.order.Len() }

// bytes returns the bytes that count for MaxBytes.
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

// find returns the index of a topic's entry, or 0.
func (v *values) find(topic []byte) (n uint32) {
	v.store.View(topic, func(r kvmsg.Record) { n = uint32(r.Seq()) })
	return n
}

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

func (v *values) drop(n uint32) {
	v.order.Delete(n)
	v.unlink(n)
	topic := []byte(v.entries[n].topic)
	v.topicBytes -= len(topic)
	v.store.Delete(kvmsg.HashKey(topic), topic)
	v.entries[n] = entry{}
	v.free = append(v.free, n)
}

// link adds an entry to the end of the list, as the most recently updated.
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

// expire removes the topics whose last message is too old.
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

// ascend calls f for the topics with a prefix, in order, starting at from, until f
// returns false. f must not change values.
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

// tidy frees some of the memory of overwritten and removed messages.
func (v *values) tidy() {
	for range 4 {
		if !v.store.Tidy(1 << 20) {
			return
		}
	}
}
