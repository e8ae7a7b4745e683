package main

import (
	"encoding/binary"
	"hash/maphash"
)

// table is the replica of every system whose client keeps none, and the map of the bare
// server: open addressing, records side by side in one block, and a value that is written
// over the old one if it has the same size. It does no more than a replica must.
type table struct {
	seed  maphash.Seed
	slots []slot // a power of two
	used  int
	block []byte
}

type slot struct {
	tag uint32 // bits of the hash that do not choose the slot
	at  uint32 // cache line of the record in block, plus 1; 0 is a free slot
}

const (
	recordHeader = 8  // two lengths
	cacheLine    = 64 // bytes
)

func newTable() *table {
	return &table{seed: maphash.MakeSeed(), slots: make([]slot, 1<<15)}
}

// put stores copies.
func (t *table) put(key, value []byte) {
	h := maphash.Bytes(t.seed, key)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.at == 0 {
			*s = slot{uint32(h >> 32), t.add(key, value)}
			if t.used++; t.used > len(t.slots)/2 {
				t.grow()
			}
			return
		}
		if s.tag != uint32(h>>32) {
			continue
		}
		k, v := t.record(s.at)
		if string(k) != string(key) {
			continue
		}
		if len(v) == len(value) {
			copy(v, value)
		} else {
			s.at = t.add(key, value)
		}
		return
	}
}

// get returns the value, which is lent until the next put.
func (t *table) get(key string) ([]byte, bool) {
	h := maphash.String(t.seed, key)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; t.slots[i].at != 0; i = (i + 1) & mask {
		if k, v := t.record(t.slots[i].at); string(k) == key {
			return v, true
		}
	}
	return nil, false
}

func (t *table) add(key, value []byte) uint32 {
	at := len(t.block)
	t.block = binary.LittleEndian.AppendUint32(t.block, uint32(len(key)))
	t.block = binary.LittleEndian.AppendUint32(t.block, uint32(len(value)))
	t.block = append(append(t.block, key...), value...)
	for len(t.block)%cacheLine != 0 {
		t.block = append(t.block, 0)
	}
	return uint32(at/cacheLine) + 1
}

func (t *table) record(at uint32) (key, value []byte) {
	b := t.block[int(at-1)*cacheLine:]
	middle := recordHeader + int(binary.LittleEndian.Uint32(b))
	return b[recordHeader:middle], b[middle : middle+int(binary.LittleEndian.Uint32(b[4:]))]
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	mask := uint64(len(t.slots) - 1)
	for _, s := range old {
		if s.at == 0 {
			continue
		}
		key, _ := t.record(s.at)
		i := maphash.Bytes(t.seed, key) & mask
		for t.slots[i].at != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = s
	}
}
