package store

import "clustermap/internal/kvmsg"

// The owner of a store can keep pieces of the log for a long time, far more than the log itself
// has. Retain would do, but every retained segment that has retired is checked again and again
// whether it is free, and only a few of them are used again. A segment that is kept is set aside
// when it retires, and comes back with the last Drop.

// Keep keeps the bytes of a segment, of which the writer has just returned a piece, until Drop. It
// reports whether the segment was not kept before. Only the writer may call it.
func (s *Map) Keep(seg *Segment) (first bool) {
	seg.kept++
	return seg.kept == 1
}

// Drop undoes one Keep. It reports whether that was the last one. Only the writer may call it.
func (s *Map) Drop(seg *Segment) (last bool) {
	seg.kept--
	if seg.kept > 0 {
		return false
	}
	if seg.left {
		seg.left = false
		s.log.leave(seg)
	}
	return true
}

// Skip returns the piece without its first n records.
func (p Piece) Skip(n int) Piece {
	for range n {
		p.off += uint32(p.Segment.record(p.off).Size())
	}
	p.Records -= n
	return p
}

// Tail is pieces of the log, in order: records as they were appended, deletions among them, and
// older ones beside the newest of a key. It has the methods of a [Cut] with which records are
// read.
type Tail struct{ pieces []Piece }

// NewTail returns a tail, which owns the slice and retains the segments until Release.
func NewTail(pieces []Piece) *Tail {
	for _, p := range pieces {
		p.Segment.Retain()
	}
	return &Tail{pieces}
}

// Pieces returns the pieces, which must not be changed.
func (t *Tail) Pieces() []Piece { return t.pieces }

// Len returns the number of records.
func (t *Tail) Len() (n int) {
	for _, p := range t.pieces {
		n += p.Records
	}
	return n
}

// From is Cut.From. The positions of a tail count its pieces.
func (t *Tail) From(at Position, f func(r kvmsg.Record, at Position) bool) {
	first, offset := int(at>>32), uint32(at)
	for i := first; i < len(t.pieces); i++ {
		p := &t.pieces[i]
		for off := p.off; off < p.end; {
			r := p.Segment.record(off)
			size := uint32(r.Size())
			if off >= offset && !f(r[:size:size], Position(i)<<32|Position(off)) {
				return
			}
			off += size
		}
		offset = 0
	}
}

// Segment is Cut.Segment.
func (t *Tail) Segment(at Position) *Segment { return t.pieces[at>>32].Segment }

// Piece is Cut.Piece.
func (t *Tail) Piece(at Position, size int) Piece {
	off := uint32(at)
	return Piece{Segment: t.Segment(at), off: off, end: off + uint32(size), Records: 1}
}

// Record is Cut.Record.
func (t *Tail) Record(at Position) kvmsg.Record {
	r := t.Segment(at).record(uint32(at))
	size := r.Size()
	return r[:size:size]
}

// Bytes is Cut.Bytes.
func (t *Tail) Bytes() (n int) {
	var before *Segment
	for _, p := range t.pieces {
		if p.Segment != before {
			n += p.Segment.Size()
		}
		before = p.Segment
	}
	return n
}

// Outlived is Cut.Outlived.
func (t *Tail) Outlived(s *Map, seen map[*Segment]bool) (bytes int) {
	for _, p := range t.pieces {
		if !seen[p.Segment] && !s.log.has(p.Segment) {
			seen[p.Segment] = true
			bytes += p.Segment.Size()
		}
	}
	return bytes
}

// Release releases the tail. It must be called once.
func (t *Tail) Release() {
	for _, p := range t.pieces {
		p.Segment.Release()
	}
	t.pieces = nil
}
