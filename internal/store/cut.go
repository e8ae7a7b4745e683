package store

import "clustermap/internal/kvmsg"

// Cut is the state of a store at one moment, for those who take longer to read
// it than the writer can wait.
//
// It is made of pins: for each segment in use a reference, and its live bits as
// they were (blocks). Both the bytes and the bits are shared with the store:
//
//   - Bytes that a set bit stands for were complete at the cut and never change
//     afterwards. The reference keeps the segment from being recycled, whatever
//     becomes of its records meanwhile.
//   - The writer copies the blocks of a segment before the first change after a
//     cut (shared, of a segment), so those in the pin stay what they were. It pays with
//     one copy of at most 32 KiB for each segment that it changes, not with a
//     pause at the cut, which is one step a segment.
//
// Why the live bits of the cut are the newest version ≤ S of every key: the
// writer makes cuts between its calls, so every record it holds has a sequence
// ≤ S, S being the last it gave out, and by invariant 2 of Map the set bits are
// the records which the index pointed to: one a key, the newest. Later calls set
// bits in their own copies only. A record which compaction moves later is still
// read in its old place, where its bit is set in the shared blocks; one that it had
// moved before is read in its new place, for the bit of the old one was cleared
// in the same call. There is no moment between two calls when both are set, or
// neither.
//
// The design that was rejected froze the index tables instead. It makes the
// writer copy the whole index after a cut, table by table, and the reader of the
// cut look up one record after the other all over the log, a cache miss each. In
// this one the reader walks the log in the order of its bytes, and records that
// lie side by side go out as one piece.
type Cut struct {
	Sequence int64 // S, for the owner of the store to set
	pins     []pin
	keys     int
}

type pin struct {
	seg    *Segment
	blocks []block
}

// Cut returns the state of the store as it is now. The writer calls it; what it
// returns may then be read from any goroutines until Release.
func (s *Map) Cut() *Cut {
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

// Len returns the number of records.
func (c *Cut) Len() int { return c.keys }

// each calls f for every record and the hash of its key, in no order that means
// anything, until f returns false. The records are lent until Release.
func (c *Cut) each(f func(r kvmsg.Record, hash uint64) bool) {
	c.Records(func(r kvmsg.Record) bool { return f(r, kvmsg.HashKey(r.Key())) })
}

// Records is each without the hash.
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

// Position is where a record of a cut is: the number of its pin and its offset in
// the segment. Positions rise in the order in which From visits records, and a
// position plus 1 is at most the next one.
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

// Segment returns the segment that a position is in.
func (c *Cut) Segment(at Position) *Segment { return c.pins[at>>32].seg }

// Record returns the record at a position.
func (c *Cut) Record(at Position) kvmsg.Record {
	r := c.Segment(at).record(uint32(at))
	size := r.Size()
	return r[:size:size]
}

// CutKey is Cut for a single key: the cut holds nothing else. The list has the
// key's position, or is empty if the store does not have the key. The writer calls
// it.
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

// Pieces calls f for every run of records that lie side by side in the log, until
// f returns false. A piece may be kept beyond Release by retaining its segment.
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

// Bytes returns the bytes of the segments that the cut keeps.
func (c *Cut) Bytes() (n int) {
	for _, p := range c.pins {
		n += len(p.seg.buf)
	}
	return n
}

// Outlived returns the bytes that only cuts still need: the segments of this one
// that its store has given up and that are not in seen, to which it adds them, and
// the notes of what was live.
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

// Release ends the cut. It is called once, when nobody reads it any more.
func (c *Cut) Release() {
	for _, p := range c.pins {
		p.seg.Release()
	}
	c.pins = nil
}
