package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"go.etcd.io/raft/v3"

	"clustermap/internal/mutate"
)

// reads are the questions for a linearizable point of the log. One round of the leader, which
// asks a majority whether it still leads, answers all that came before it began; those that
// come meanwhile wait for the next one.
type reads struct {
	node    uint64
	number  uint64 // of the last round; it begins at random, since a restart must not repeat one
	waiting []*readWait
	round   []*readWait // nil if there is none
	asked   uint64      // when, in ticks; 0 if the round was not begun
	rounds  uint64      // for tests and figures
	found   []readFound
	err     error
}

// readDone is called once with the index, when the owner has everything up to it.
type readDone func(index uint64, err error)

// A readWait is who waits.
type readWait struct {
	done readDone
	gone atomic.Bool // the caller waits no more
}

// readFound is an index that the owner has to reach.
type readFound struct {
	index uint64
	done  []*readWait
}

func (r *reads) init(node uint64) {
	var b [8]byte
	rand.Reader.Read(b[:])
	r.node, r.number = node, binary.BigEndian.Uint64(b[:])
}

// context is what identifies a round among those of all nodes.
func (r *reads) context() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.node), r.number)
}

// has answers those that the owner has reached.
func (r *reads) has(applied uint64) {
	rest := r.found[:0]
	for _, f := range r.found {
		if f.index > applied {
			rest = append(rest, f)
			continue
		}
		for _, w := range f.done {
			w.done(f.index, nil)
		}
	}
	clear(r.found[len(rest):])
	r.found = rest
}

// end answers all with an error.
func (r *reads) end(err error) {
	if r.err == nil {
		r.err = err
	}
	for _, w := range r.waiting {
		w.done(0, r.err)
	}
	for _, w := range r.round {
		w.done(0, r.err)
	}
	for _, f := range r.found {
		for _, w := range f.done {
			w.done(0, r.err)
		}
	}
	r.waiting, r.round, r.found = nil, nil, nil
}

// read asks for an index that is not less than that of any entry committed before the call.
func (c *core) read(done readDone) *readWait {
	w := &readWait{done: done}
	if c.reads.err != nil {
		done(0, c.reads.err)
		return w
	}
	c.reads.waiting = append(c.reads.waiting, w)
	c.guard(func() {
		c.ask()
		c.settle()
	})
	return w
}

// forget removes those that wait no more.
func (r *reads) forget() {
	gone := func(w *readWait) bool { return w.gone.Load() }
	r.waiting = slices.DeleteFunc(r.waiting, gone)
	r.round = slices.DeleteFunc(r.round, gone)
	for i := range r.found {
		r.found[i].done = slices.DeleteFunc(r.found[i].done, gone)
	}
}

// ask begins a round, if none is under way.
func (c *core) ask() {
	r := &c.reads
	if r.round == nil {
		if len(r.waiting) == 0 {
			return
		}
		r.round, r.waiting = r.waiting, nil
		r.asked = 0
	}
	if r.asked > 0 {
		return
	}
	if c.role == raft.StateLeader && c.leading != c.term {
		return // what the leaders before it have committed is not known yet
	}
	if c.leader == 0 {
		return
	}
	r.asked = c.now + 1
	r.number++
	r.rounds++
	if mutate.ClusterReadLocal {
		c.answered(r.context(), c.commit)
		return
	}
	c.raw.ReadIndex(r.context())
}

// answered is called with the answer to a round.
func (c *core) answered(context []byte, index uint64) {
	r := &c.reads
	if r.round == nil || r.asked == 0 || string(context) != string(r.context()) {
		return // it was asked again
	}
	r.found = append(r.found, readFound{index, r.round})
	r.round, r.asked = nil, 0
	r.has(c.applied)
	c.ask()
}

// askAgain asks again what has had no answer for a while.
func (c *core) askAgain() {
	r := &c.reads
	r.forget()
	if r.round != nil && (r.asked == 0 || c.now+1-r.asked >= readTicks) {
		r.asked = 0
	}
	c.ask()
}
