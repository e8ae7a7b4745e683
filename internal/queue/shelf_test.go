package queue

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"clustermap/zmtp"
)

// TestShelf: messages of any sizes, one after another, are copied as they are, and what the
// application does to one changes no other.
func TestShelf(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s shelf
		var got, want [][][]byte
		most := []int{1, 20, 300, 4096, 7000}[rng.IntN(5)]
		for range 1 + rng.IntN(100) {
			var lead []byte
			var frames [][]byte
			for range 1 + rng.IntN(1+rng.IntN(5)) {
				frames = append(frames, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(most)))
			}
			wire := zmtp.AppendMessage(nil, frames...)
			if rng.IntN(2) == 0 {
				lead = []byte(fmt.Sprint(rng.IntN(1000)))
				frames = append([][]byte{bytes.Clone(lead)}, frames...)
			}
			m, _ := s.copy(wire, lead, rng.IntN(50))
			got, want = append(got, m), append(want, frames)
		}
		for i, m := range got {
			if !slices.EqualFunc(m, want[i], bytes.Equal) || len(m) != cap(m) {
				t.Fatalf("seed %d, message %d: %q, want %q", seed, i, m, want[i])
			}
			for j, f := range m {
				if f == nil || len(f) != cap(f) {
					t.Fatalf("seed %d, message %d: frame %d of length %d has a capacity of %d", seed, i, j, len(f), cap(f))
				}
				clear(f)
			}
			clear(m)
		}
	}
}

// TestIdleInboxKeepsNoShelf: the memory that was made for messages which turn out to be smaller
// goes with the last of them.
func TestIdleInboxKeepsNoShelf(t *testing.T) {
	t.Parallel()
	for _, first := range []int{1000, 4096, 7000} {
		in, q := newInbox(HWM{Messages: 100, Bytes: 1 << 20}), newInqueue()
		b := batchOf(nil, string(make([]byte, first)), "small", "small")
		in.Put(q, &b, alive)
		for left := 2; left >= 0; left-- {
			_, m, err := in.Take(NoWait, nil, nil)
			must(t, err)
			if len(m) != 1 {
				t.Fatalf("%q", m)
			}
			if kept := len(in.shelf.bytes); left == 0 && kept > 0 {
				t.Errorf("after a message of %d bytes and small ones %d bytes are kept", first, kept)
			}
		}
	}
}

// TestShelfPins: a message that is kept alone keeps at most 8 KiB beside itself, of whatever
// sizes those are with which it shares memory.
func TestShelfPins(t *testing.T) {
	const follow = 1000
	small := wire("ab")
	check := func(what string, own int, copies func(s *shelf) ([][]byte, int)) {
		var before, after runtime.MemStats
		var s shelf
		kept := make([][][]byte, 0, 200)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range cap(kept) {
			m, _ := copies(&s)
			kept = append(kept, m)
			s = shelf{} // so that the next one is of other memory
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		// The runtime rounds sizes up, by an eighth at most.
		if each := int(after.HeapAlloc-before.HeapAlloc) / cap(kept); each > own*9/8+shelfPins+16 {
			t.Errorf("%s: a message of %d bytes keeps %d", what, own, each)
		}
		runtime.KeepAlive(kept)
	}
	for _, size := range []int{0, 1, 16, 64, 100, 256, 500, 1000, 1024, 2000, 3000, 3392, 3393, 4000, 4095, 4096, 4097, 5000, 6000, 7000, 7168, 7169, 8000} {
		for _, count := range []int{1, 2, 5, 40} {
			frames := make([][]byte, count)
			frames[0] = make([]byte, size)
			wire := zmtp.AppendMessage(nil, frames...)
			if len(wire) >= LargeMessage {
				continue
			}
			what := fmt.Sprintf("%d bytes in %d frames", size, count)
			check(what, size+frameCost*count, func(s *shelf) ([][]byte, int) { return s.copy(wire, nil, follow) })
			// A small one behind it, in the same memory.
			check("a small one behind "+what, 2+frameCost, func(s *shelf) ([][]byte, int) {
				s.copy(wire, nil, follow)
				return s.copy(small, nil, follow)
			})
		}
	}
}
