package store

import "clustermap/internal/kvmsg"

// Walk iterates over the records of a cut in the order of the log, one block at a time.
// It can be continued at any time.
type Walk struct {
	pins  []pin
	pin   int
	block int // the next block of the pin

	found []Placed // records of the current block
	next  int      // index in found
	visit func(kvmsg.Record, uint32) bool
}

// Placed is a record and its position in a cut.
type Placed struct {
	Record kvmsg.Record
	pin    int
	offset uint32
}

// NewWalk returns a walk. The cut must not be released before it is over.
func NewWalk(c *Cut) *Walk {
	w := &Walk{pins: c.pins, found: make([]Placed, 0, blockSize>>granuleBits)}
	w.visit = func(r kvmsg.Record, offset uint32) bool {
		w.found = append(w.found, Placed{r, w.pin, offset})
		return true
	}
	return w
}

// Step returns the next record, and false at the end.
func (w *Walk) Step() (Placed, bool) {
	for w.next == len(w.found) {
		if w.pin == len(w.pins) {
			return Placed{}, false
		}
		p := &w.pins[w.pin]
		if w.block == len(p.blocks) {
			w.pin, w.block = w.pin+1, 0
			continue
		}
		w.found, w.next = w.found[:0], 0
		p.seg.records(p.blocks, w.block, w.visit)
		w.block++
	}
	w.next++
	return w.found[w.next-1], true
}

// Marks is a set of records of a cut, with one bit for 16 bytes of log.
type Marks struct {
	store *Map
	bits  [][]uint64       // one bit per granule, by pin
	pinOf map[*Segment]int // index of a segment's pin
}

// NewMarks returns an empty set for a cut of a store that has no writer any more.
func NewMarks(s *Map, c *Cut) *Marks {
	m := &Marks{store: s, bits: make([][]uint64, len(c.pins)), pinOf: make(map[*Segment]int, len(c.pins))}
	for i, p := range c.pins {
		granules := min(len(p.seg.buf), maxSegment)>>granuleBits + 1
		m.bits[i] = make([]uint64, (granules+63)/64)
		m.pinOf[p.seg] = i
	}
	return m
}

// Mark adds the record of key and returns it, or nil if there is none. The result
// extends to the end of its segment.
func (m *Marks) Mark(key []byte) kvmsg.Record {
	v, _, r := m.store.search(kvmsg.HashKey(key), key)
	if v == 0 {
		return nil
	}
	at := slotLocation(v)
	if i, ok := m.pinOf[m.store.log.segment(at)]; ok {
		granule := at.offset() >> granuleBits
		m.bits[i][granule/64] |= 1 << (granule % 64)
	}
	return r
}

// Has reports whether a record is in the set.
func (m *Marks) Has(p Placed) bool {
	return m.bits[p.pin][p.offset>>granuleBits/64]>>(p.offset>>granuleBits%64)&1 != 0
}
