package fanout

import (
	"slices"

	"clustermap/internal/buf"
	"clustermap/internal/queue"
)

// copies lets groups share a copy of the messages that they all get. Peers with
// different topics are in different groups, but often the same messages of a batch
// are for several of them: these are copied for the first group, and the other
// groups share that copy. So subscribers that do not read cost the publisher one
// copy in all, not one each.
//
// A copy contains only messages for every group that shares it. So a peer that keeps it
// for long keeps no more memory than it has queued, rounded up to the size of a chunk.
// Guarded by the mutex of the subscriptions.
type copies struct {
	shared bool // copies may be shared
	made   []copied
}

// copied is a selection of runs of a batch, and their copy.
type copied struct {
	runs  []queue.Run
	chunk *buf.Chunk
}

// begin begins a batch. With Drop nothing is shared: there a peer may
// keep its queue forever, so the queue must hold no memory but its own.
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

// of returns a chunk with a copy of the runs of wire, size bytes in all, for groups
// to share. It returns nil if the runs are to be copied for this group alone: if
// sharing is off, they are too small, or the batch has maxCopies already.
func (c *copies) of(wire []byte, runs []queue.Run, size int) *buf.Chunk {
	if !c.shared || size < queue.LendFrom {
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
	queue.AppendRuns(chunk.Data()[:0], wire, runs)
	c.made = append(c.made, copied{runs, chunk})
	return chunk
}
