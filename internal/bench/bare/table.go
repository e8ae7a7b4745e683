package bare

import (
	"encoding/binary"
	"hash/maphash"

	"clustermap/internal/bench/workload"
)

// Table is a hash table with open addressing, for values that stay: the least
// that a server has to do with an update. Its records lie in one block, each two
// lengths, key and value, beginning on a cache line of its own; a value of the
// same size is written over the old one. A put misses the cache twice at most,
// for the slot and for a short record.
type Table struct {
	seed  maphash.Seed
	slots []slot // a power of two
	used  int
	block []byte

	touched uint64 // sum of bytes that store reads ahead, so that the reads are compiled
}

type slot struct {
	tag uint32 // of the hash, those bits that do not choose the slot
	at  uint32 // cache line of the record in block, plus 1; 0 is a free slot
}

const (
	recordHeader = 8  // two lengths
	line         = 64 // bytes of a cache line
)

// NewTable returns a table with room for the given number of keys.
func NewTable(keys int) *Table {
	t := &Table{seed: maphash.MakeSeed(), slots: make([]slot, 1024)}
	for !t.fits(keys) {
		t.slots = make([]slot, 2*len(t.slots))
	}
	return t
}

// fits tells whether the slots are at most three quarters full with the given number of keys.
func (t *Table) fits(keys int) bool { return keys <= len(t.slots)/4*3 }

// store puts the pairs of up to batch messages in b. Their cache misses overlap:
// first every slot is touched, then every record, and then each pair is put.
func (t *Table) store(b []byte, messages []message) {
	var hashes [batch]uint64
	var records [batch]uint32
	mask := uint64(len(t.slots) - 1)
	for i := range messages {
		h := maphash.Bytes(t.seed, messages[i].key(b))
		hashes[i], records[i] = h, t.slots[h&mask].at
	}
	for _, at := range records[:len(messages)] {
		if at != 0 {
			t.touched += uint64(t.block[int(at-1)*line])
		}
	}
	for i := range messages {
		t.put(hashes[i], messages[i].key(b), messages[i].value(b))
	}
}

// Put stores a copy of value under a copy of key.
func (t *Table) Put(key, value []byte) { t.put(maphash.Bytes(t.seed, key), key, value) }

// put stores a copy of value under a copy of key, whose hash is h.
func (t *Table) put(h uint64, key, value []byte) {
	mask := uint64(len(t.slots) - 1)
	tag := uint32(h >> 32)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.at == 0 {
			*s = slot{tag: tag, at: t.append(key, value)}
			if t.used++; !t.fits(t.used) {
				t.grow()
			}
			return
		}
		if s.tag != tag {
			continue
		}
		k, v := t.record(s.at)
		if string(k) != string(key) {
			continue
		}
		if len(v) == len(value) {
			copy(v, value)
		} else {
			s.at = t.append(key, value)
		}
		return
	}
}

func (t *Table) append(key, value []byte) uint32 {
	at := len(t.block)
	t.block = binary.LittleEndian.AppendUint32(t.block, uint32(len(key)))
	t.block = binary.LittleEndian.AppendUint32(t.block, uint32(len(value)))
	t.block = append(t.block, key...)
	t.block = append(t.block, value...)
	for len(t.block)%line != 0 {
		t.block = append(t.block, 0)
	}
	return uint32(at/line) + 1
}

func (t *Table) record(at uint32) (key, value []byte) {
	b := t.block[int(at-1)*line:]
	split := recordHeader + int(binary.LittleEndian.Uint32(b))
	return b[recordHeader:split], b[split : split+int(binary.LittleEndian.Uint32(b[4:]))]
}

func (t *Table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	mask := uint64(len(t.slots) - 1)
	for _, s := range old {
		if s.at == 0 {
			continue
		}
		// The tag does not hold the bits that choose the slot: hash again.
		key, _ := t.record(s.at)
		i := maphash.Bytes(t.seed, key) & mask
		for t.slots[i].at != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = s
	}
}

// Content returns the fingerprint of the pairs.
func (t *Table) Content() workload.Content {
	var c workload.Content
	t.each(c.Add)
	return c
}

// each calls f with every pair.
func (t *Table) each(f func(key, value []byte)) {
	for _, s := range t.slots {
		if s.at != 0 {
			f(t.record(s.at))
		}
	}
}
