package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/kvmsg"
)

// appendTo puts a record into s as the store does, and returns where.
func appendTo(s *Segment, key string, value []byte) (offset uint32, size int) {
	offset = s.used
	r := kvmsg.AppendRecord(s.buf[:offset], []byte(key), 0, nil, nil, value)
	size = len(r) - int(offset)
	s.used += uint32(size)
	s.anchor(offset)
	return offset, size
}

func TestSegmentFindsLiveRecords(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 14))
	for round := range 50 {
		s := newSegment(64 << 10)
		type rec struct {
			key          string
			offset, size int
			live         bool
		}
		var all []rec
		for i := 0; ; i++ {
			key := fmt.Sprint(i)
			value := make([]byte, rng.IntN(40))
			if rng.IntN(20) == 0 {
				value = make([]byte, rng.IntN(5*blockSize)) // blocks in which nothing begins
			}
			if s.room() < kvmsg.RecordSize(len(key), 0, 0, len(value)) {
				break
			}
			offset, size := appendTo(s, key, value)
			live := rng.IntN(50) < round
			if live {
				s.mark(offset, size)
			}
			all = append(all, rec{key, int(offset), size, live})
		}
		live, size := 0, 0
		for _, r := range all {
			if s.marked(uint32(r.offset)) != r.live {
				t.Fatalf("%q is marked: %v", r.key, !r.live)
			}
			if r.live {
				live++
				size += r.size
			}
		}
		if int(s.live) != live || s.bytes != size {
			t.Fatalf("%d live of %d bytes, want %d of %d", s.live, s.bytes, live, size)
		}
		next := 0
		for n := range s.blocks {
			s.records(s.blocks, n, func(r kvmsg.Record, offset uint32) bool {
				for !all[next].live {
					next++
				}
				want := all[next]
				if string(r.Key()) != want.key || int(offset) != want.offset || len(r) != want.size {
					t.Fatalf("found %q at %d, want %+v", r.Key(), offset, want)
				}
				next++
				live--
				return true
			})
		}
		if live != 0 {
			t.Fatalf("%d live records were not found", live)
		}
	}
}

func TestSegmentSharedBlocksStay(t *testing.T) {
	t.Parallel()
	s := newSegment(4096)
	a, size := appendTo(s, "a", nil)
	s.mark(a, size)
	old := s.blocks
	s.shared = true
	b, size := appendTo(s, "b", nil)
	s.mark(b, size)
	s.unmark(a, size)
	var keys []byte
	s.records(old, 0, func(r kvmsg.Record, _ uint32) bool { keys = append(keys, r.Key()...); return true })
	s.records(s.blocks, 0, func(r kvmsg.Record, _ uint32) bool { keys = append(keys, r.Key()...); return true })
	if !bytes.Equal(keys, []byte("ab")) {
		t.Errorf("shared and own blocks show %q", keys)
	}
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	for _, size := range []int{kvmsg.MinRecord, 4096, maxSegment, 3 * maxSegment} {
		b := allocate(size)
		if len(b) != size {
			t.Fatalf("%d bytes, want %d", len(b), size)
		}
		for i := range b {
			b[i]++
		}
	}
}
