package store

import "clustermap/internal/kvmsg"

// Cut is the state of a store at one moment, for reading that takes longer than the
// writer can wait.
//
// It consists of pins: for each segment with live records a reference, and its live
// bits at the cut (blocks). Both the bytes and the bits are shared with the store:
//
//   - The bytes of a live record were complete at the cut and never change afterwards.
//     The reference keeps the segment from being recycled, even if its records die.
//   - The writer copies the blocks of a segment before its first change after a cut (see
//     Segment.shared), so those in the pin do not change. That costs one copy of at most
//     32 KiB for each changed segment, and no pause: making a cut is one step per segment.
//
// Why the live bits of a cut are the newest version ≤ S of every key: the writer makes
// cuts between its calls, so every record in the cut has a sequence ≤ S, the last one
// assigned. By invariant 2 of Map the set bits are the records to which the index
// pointed: one for each key, the newest. Later calls set bits in their own copies only.
// A record that compaction moves later is still read in its old place, where its bit is
// set in the shared blocks. A record that it moved before is read in its new place,
// because the bit of the old one was cleared in the same call. Between two calls
// exactly one of the two bits is set.
//
// The alternative was to freeze the tables of the index. Then the writer would copy the
// whole index after a cut, table by table, and the reader would look up records all
// over the log, each with a cache miss. Here the reader walks the log in the order of
// its bytes, and adjacent records form one piece.
type Cut struct {
	Sequence int64 // S; set by the owner of the store
	pins     []pin
	keys     int
}

// pin is a segment and its live bits at the cut.
type pin struct {
	seg    *Segment
	blocks []block
}

// Cut returns the current state of the store. Only the writer may call it. Any
// goroutines may read the result until Release.
func (s *Map) Cut() *Cut {
	s.Flush()
	n := 0
	s.log.each(func(*Segment) { n++ })
	c := &Cut{keys: s.count, pins: make([]pin, 0, n)}
	s.log.each(func(seg *Segment) {
		seg.Retain()
		seg.shared = true
		c.pins = append(c.pins, pin{seg: seg, blocks: seg.blocks})
	})
	return c
}

// Len returns the number of keys.
func (c *Cut) Len() int { return c.keys }

// Records calls f for every record, in no particular order, until f returns false. The
// records are valid until Release.
func (c *Cut) Records(f func(kvmsg.Record) bool) {
	visit := func(r kvmsg.Record, _ uint32) bool { return f(r) }
	for _, p := range c.pins {
		for n := range p.blocks {
			if !p.seg.records(p.blocks, n, visit) {
				return
			}
		}
	}
}

// Position is the position of a record in a cut: the index of its pin and its offset in
// the segment. Positions increase in the order in which From visits records; a position
// plus 1 is at most the next one.
type Position uint64

// From calls f for the records from a position on, until f returns false.
func (c *Cut) From(at Position, f func(r kvmsg.Record, at Position) bool) {
	first, offset := int(at>>32), uint32(at)
	for i := first; i < len(c.pins); i++ {
		p, base := c.pins[i], Position(i)<<32
		visit := func(r kvmsg.Record, off uint32) bool { return off < offset || f(r, base|Position(off)) }
		for n := int(offset >> blockBits); n < len(p.blocks); n++ {
			if !p.seg.records(p.blocks, n, visit) {
				return
			}
		}
		offset = 0
	}
}

// Segment returns the segment of a position.
func (c *Cut) Segment(at Position) *Segment { return c.pins[at>>32].seg }

// Piece returns the record of size bytes at a position as a piece.
func (c *Cut) Piece(at Position, size int) Piece {
	off := uint32(at)
	return Piece{Segment: c.Segment(at), off: off, end: off + uint32(size), Records: 1}
}

// Record returns the record at a position.
func (c *Cut) Record(at Position) kvmsg.Record {
	r := c.Segment(at).record(uint32(at))
	size := r.Size()
	return r[:size:size]
}

// CutKey is Cut for a single key: the cut has no other record. The list has the key's
// position, or is empty if the key does not exist. Only the writer may call it.
func (s *Map) CutKey(key []byte) (c *Cut, list []Position) {
	v, _, _ := s.search(kvmsg.HashKey(key), key)
	if v == 0 {
		return &Cut{}, nil
	}
	at := slotLocation(v)
	seg := s.log.segment(at)
	seg.Retain()
	return &Cut{keys: 1, pins: []pin{{seg: seg}}}, []Position{Position(at.offset())}
}

// Pieces calls f for every run of adjacent records in the log, until f returns false.
// To keep a piece beyond Release, retain its segment.
func (c *Cut) Pieces(f func(Piece) bool) {
	var run Piece
	visit := func(r kvmsg.Record, at uint32) bool {
		if run.Records > 0 && run.end != at {
			if !f(run) {
				return false
			}
			run.Records = 0
		}
		if run.Records == 0 {
			run.off = at
		}
		run.end = at + uint32(len(r))
		run.Records++
		return true
	}
	for _, p := range c.pins {
		run = Piece{Segment: p.seg}
		for n := range p.blocks {
			if !p.seg.records(p.blocks, n, visit) {
				return
			}
		}
		if run.Records > 0 && !f(run) {
			return
		}
	}
}

// Bytes returns the size of the segments that the cut pins.
func (c *Cut) Bytes() (n int) {
	for _, p := range c.pins {
		n += len(p.seg.buf)
	}
	return n
}

// Outlived returns the number of bytes that only cuts need: the liveness maps of c, and
// the segments of c that the store no longer uses and that are not in seen. It adds
// those to seen.
func (c *Cut) Outlived(s *Map, seen map[*Segment]bool) (bytes int) {
	for _, p := range c.pins {
		bytes += len(p.blocks) * blockBytes
		if !seen[p.seg] && !s.log.has(p.seg) {
			seen[p.seg] = true
			bytes += len(p.seg.buf)
		}
	}
	return bytes
}

// Release releases the cut. It must be called once, when no goroutine reads the cut any
// more.
func (c *Cut) Release() {
	for _, p := range c.pins {
		p.seg.Release()
	}
	c.pins = nil
}
