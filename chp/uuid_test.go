package chp

import (
	"testing"

	"github.com/google/uuid"
)

func TestUUIDSourceMakesVersion8(t *testing.T) {
	t.Parallel()
	for range 64 {
		source, err := newUUIDSource()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{0, 1, 255, 1 << 40, uncounted - 1, uncounted, uncounted | 5} {
			octets := source.append(nil, n)
			id, err := uuid.FromBytes(octets)
			if err != nil {
				t.Fatal(err)
			}
			if id.Version() != 8 || id.Variant() != uuid.RFC4122 {
				t.Fatalf("%v has version %d and variant %v", id, id.Version(), id.Variant())
			}
			got, counted := source.number(octets)
			if counted != (n < uncounted) || counted && got != n {
				t.Fatalf("number(%v) = %d, %v; want %d", id, got, counted, n)
			}
		}
	}
}

func TestUUIDSourceKnowsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	mine, _ := newUUIDSource()
	other, _ := newUUIDSource()
	if mine.prefix == other.prefix {
		t.Fatal("two sources have the same prefix")
	}
	if _, own := mine.number(other.append(nil, 7)); own {
		t.Error("took another client's UUID for its own")
	}
	id := mine.append(nil, 7)
	id[8] |= 0x40
	if _, own := mine.number(id); own {
		t.Error("took a UUID of another variant for its own")
	}
}

func TestUUIDSourceAllocatesNothing(t *testing.T) {
	source, _ := newUUIDSource()
	buffer := make([]byte, 0, uuidSize)
	var sum uint64
	if n := testing.AllocsPerRun(100, func() {
		buffer = source.append(buffer[:0], 3)
		got, _ := source.number(buffer)
		sum += got
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
