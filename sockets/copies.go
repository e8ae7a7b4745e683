package sockets

import (
	"slices"

	"clustermap/internal/buf"
)

// copies shares what several groups get alike. Peers with topics of their own are
// groups of their own, but often the same part of a batch is for many of them: it is
// copied for the first, and the others are lent that copy. So subscribers that do
// not read cost the publisher one copy, and not one each.
//
// A copy holds nothing else than what all who share it are to get, so one of them
// that keeps it for long keeps no more memory than it has queued, rounded to the
// size of a chunk. Under the mutex of the subscriptions.
type copies struct {
	shared bool // copies may be shared at all
	made   []copied
}

// copied is runs of the wire, and their copy.
type copied struct {
	runs  []run
	chunk *buf.Chunk
}

// maxCopies bounds the different runs that are looked through for each group: what
// many share is found among the first.
const maxCopies = 8

// begin begins a batch. With the policy Drop a peer may take nothing for ever, so it
// gets a copy of its own, in memory that is its own.
func (c *copies) begin(p Policy) { c.shared = p != Drop }

// end ends the batch.
func (c *copies) end() {
	for i := range c.made {
		if c.made[i].chunk != nil {
			c.made[i].chunk.Release()
		}
		c.made[i] = copied{}
	}
	c.made = c.made[:0]
}

// of returns a copy of the runs of wire, of size bytes, that is to be lent, or nil
// if it is too little for that.
func (c *copies) of(wire []byte, runs []run, size int) *buf.Chunk {
	if !c.shared || size < lendFrom {
		return nil
	}
	for i := range c.made {
		if m := &c.made[i]; slices.Equal(m.runs, runs) {
			return m.chunk
		}
	}
	if len(c.made) == maxCopies {
		return nil
	}
	chunk := buf.Get(size)
	appendRuns(chunk.Data()[:0], wire, runs)
	c.made = append(c.made, copied{runs, chunk})
	return chunk
}
