package chp

// walk goes through the records of a cut, in the order of the log, and can stop
// anywhere and go on later. It takes the records of one block of the log at a
// time.
type walk struct {
	pins  []pin
	pin   int
	block int // of the pin, the next one

	found []placed // records of the block before it
	next  int      // of found
	visit func(record, uint32) bool
}

// placed is a record and where it stands: which pin, and where in its segment.
type placed struct {
	record record
	pin    int
	offset uint32
}

// newWalk begins a walk. The cut must stay until it is over.
func newWalk(c *cut) *walk {
	w := &walk{pins: c.pins, found: make([]placed, 0, blockSize>>granuleBits)}
	w.visit = func(r record, offset uint32) bool {
		w.found = append(w.found, placed{r, w.pin, offset})
		return true
	}
	return w
}

// step returns the next record.
func (w *walk) step() (placed, bool) {
	for w.next == len(w.found) {
		if w.pin == len(w.pins) {
			return placed{}, false
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

// marks notes which records of a cut have been marked: one bit for 16 bytes of
// log.
type marks struct {
	store *store
	bits  [][]uint64       // by pin, a bit a granule
	pinOf map[*segment]int // the pins of the cut
}

// newMarks returns marks for a cut of a store that nobody writes to any more.
func newMarks(s *store, c *cut) *marks {
	m := &marks{store: s, bits: make([][]uint64, len(c.pins)), pinOf: make(map[*segment]int, len(c.pins))}
	for i, p := range c.pins {
		granules := min(len(p.seg.buf), maxSegment)>>granuleBits + 1
		m.bits[i] = make([]uint64, (granules+63)/64)
		m.pinOf[p.seg] = i
	}
	return m
}

// mark marks the record of key and returns it, or nil if there is none. The
// record goes on to the end of its segment.
func (m *marks) mark(key []byte) record {
	v, _, r := m.store.search(hashKey(key), key)
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

// has reports whether a record has been marked.
func (m *marks) has(p placed) bool {
	return m.bits[p.pin][p.offset>>granuleBits/64]>>(p.offset>>granuleBits%64)&1 != 0
}
