package pair

import (
	"clustermap/chp/internal/state"
	"clustermap/internal/fifo"
	"clustermap/internal/store"
)

// tail holds the last batches of a server of a pair, for the other server. A follower
// is a position in it: a number that increases by one with each batch.
//
// It retains the segments of its batches, so it is bounded in bytes.
type tail struct {
	size    int // bound of bytes
	batches fifo.Queue[tailBatch]
	begin   uint64                  // position of the oldest one
	pieces  fifo.Queue[store.Piece] // of all batches, in order
	ended   uint64                  // number of pieces dropped so far
	bytes   int
	total   uint64        // bytes of all batches ever added
	grown   chan struct{} // closed when a batch is added; nil while no goroutine waits

	// While the other server receives the whole map, and until it has caught up, the
	// batches from position keep on are kept beyond size, up to most bytes. Otherwise most
	// is 0.
	keep uint64
	most int
}

// tailBatch is a batch in the tail.
type tailBatch struct {
	state.Head
	pieces int    // number of pieces
	piece  uint64 // number of the first one, counted since the start
	bytes  int    // memory
	before uint64 // tail.total before it was added
}

// end returns the position after the newest batch.
func (t *tail) end() uint64 { return t.begin + uint64(t.batches.Len()) }

// at returns the batch at a position.
func (t *tail) at(position uint64) *tailBatch { return t.batches.At(int(position - t.begin)) }

// add appends a batch. It keeps as many batches before it as are held, which the other
// server needs after a copy of the map.
func (t *tail) add(h state.Head, pieces []store.Piece, held int) {
	b := tailBatch{
		Head: h, pieces: len(pieces), piece: t.ended + uint64(t.pieces.Len()),
		bytes: batchBytes, before: t.total,
	}
	for _, p := range pieces {
		p.Segment.Retain()
		b.bytes += p.Size()
		t.pieces.Push(p)
	}
	t.bytes += b.bytes
	t.total += uint64(b.bytes)
	t.batches.Push(b)
	for t.bytes > t.size && (t.begin < t.keep || t.bytes > t.most) && t.batches.Len() > 1+held {
		t.drop()
	}
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
}

// drop removes the oldest batch.
func (t *tail) drop() {
	b := t.batches.Pop()
	for range b.pieces {
		t.pieces.Pop().Segment.Release()
	}
	t.bytes -= b.bytes
	t.ended += uint64(b.pieces)
	t.begin++
}

// clear removes all batches. Later ones do not continue them, so no earlier position
// stays valid.
func (t *tail) clear() {
	for t.batches.Len() > 0 {
		t.drop()
	}
	t.begin++ // invalidates all earlier positions
	t.most = 0
}

// keepFrom keeps the batches from a position on beyond the size of the tail, up to most
// bytes.
func (t *tail) keepFrom(position uint64, most int) { t.keep, t.most = position, max(most, t.size) }

// caughtUp moves the position that keepFrom has set, and ends its effect when the other
// server is no longer far behind.
func (t *tail) caughtUp(position uint64) {
	if t.keep = position; t.lag(position) <= t.size/2 {
		t.most = 0
	}
}

// behind returns the position of the first batch after a sequence of a reign, and false
// if the tail does not reach back so far.
func (t *tail) behind(reign uint64, last int64) (position uint64, ok bool) {
	for at := t.end(); at > t.begin; at-- {
		if b := t.at(at - 1); b.Last() <= last {
			return at, b.Last() == last && b.Reign == reign
		}
	}
	return 0, false
}

// A Part is some batches of a journal with their pieces, whose segments are retained. Its
// memory is used again.
type Part struct {
	batches []tailBatch
	pieces  []store.Piece
}

// Len returns the number of batches.
func (p *Part) Len() int { return len(p.batches) }

// Each calls send with each batch and its pieces, until it returns an error, which it
// returns. It empties the part, and releases all segments.
func (p *Part) Each(send func(h *state.Head, pieces []store.Piece) error) (err error) {
	rest := p.pieces
	for i := range p.batches {
		b := &p.batches[i]
		if err == nil {
			err = send(&b.Head, rest[:b.pieces])
		}
		for _, piece := range rest[:b.pieces] {
			piece.Segment.Release()
		}
		rest = rest[b.pieces:]
	}
	clear(p.pieces)
	p.batches, p.pieces = p.batches[:0], p.pieces[:0]
	return err
}

// read copies batches from a position on to part, up to about size bytes, and retains
// their segments. It returns false if the position is no longer in the tail.
func (t *tail) read(position uint64, size int, part *Part) (ok bool) {
	part.batches, part.pieces = part.batches[:0], part.pieces[:0]
	if position < t.begin || position > t.end() {
		return false
	}
	for ; position < t.end() && size >= 0; position++ {
		b := t.at(position)
		size -= b.bytes
		for i := range b.pieces {
			p := *t.pieces.At(int(b.piece-t.ended) + i)
			p.Segment.Retain()
			part.pieces = append(part.pieces, p)
		}
		part.batches = append(part.batches, *b)
	}
	return true
}

// fill returns the fill level of the tail, from 0 to 1, for a follower at a position. A
// follower that the tail no longer reaches needs the whole map and does not count.
func (t *tail) fill(position uint64) float64 {
	if position < t.begin {
		return 0
	}
	return float64(t.lag(position)) / float64(max(t.size, t.most))
}

// lag returns the number of bytes from a position on.
func (t *tail) lag(position uint64) (bytes int) {
	switch {
	case position < t.begin:
		return t.bytes
	case position >= t.end():
		return 0
	}
	return int(t.total - t.at(position).before)
}

func (t *tail) more() <-chan struct{} {
	if t.grown == nil {
		t.grown = make(chan struct{})
	}
	return t.grown
}
