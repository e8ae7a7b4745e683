package submit

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"

	"github.com/google/uuid"
)

func newUUIDMaker() *uuidMaker { return &uuidMaker{uuidSecret: newUUIDSecret()} }

// kvpubOf is update n as it comes back.
func (m *uuidMaker) kvpubOf(n uint64, key, value string) kvmsg.Record {
	return kvmsg.AppendRecord(nil, []byte(key), 1, m.append(nil, n), nil, []byte(value))
}

func TestUUIDIsVersion8(t *testing.T) {
	t.Parallel()
	m := newUUIDMaker()
	for _, n := range []uint64{1, 255, 1 << 40, 1<<61 - 1} {
		r := m.kvpubOf(n, "k", "v")
		id, err := uuid.FromBytes(r.UUID())
		if err != nil {
			t.Fatal(err)
		}
		if id.Version() != 8 || id.Variant() != uuid.RFC4122 {
			t.Fatalf("%v has version %d and variant %v", id, id.Version(), id.Variant())
		}
		got, own := m.number(r, max(n, 10)-9, n+9)
		if !own || got != n {
			t.Fatalf("number(%v) = %d, %v; want %d", id, got, own, n)
		}
	}
}

// A client recognizes only its own updates, as it has sent them, and only those in
// flight.
func TestUUIDIsForOneUpdate(t *testing.T) {
	t.Parallel()
	mine, other := newUUIDMaker(), newUUIDMaker()
	const n = 1<<uuidNumberBits + 7
	r := mine.kvpubOf(n, "key", "value")
	for name, test := range map[string]struct {
		r           kvmsg.Record
		first, last uint64
		want        bool
	}{
		"own":                   {r, n - 3, n + 3, true},
		"own, among very many":  {r, 1, 1 << 30, true},
		"settled":               {r, n + 1, n + 3, false},
		"not yet sent":          {r, n - 3, n - 1, false},
		"nothing on its way":    {r, n, n - 1, false},
		"of another client":     {other.kvpubOf(n, "key", "value"), n - 3, n + 3, false},
		"with other properties": {kvmsg.AppendRecord(nil, []byte("key"), 1, r.UUID(), []byte("ttl=1\n"), []byte("value")), n, n, true},
	} {
		if got, own := mine.number(test.r, test.first, test.last); own != test.want || own && got != n {
			t.Errorf("%s: %d, %v", name, got, own)
		}
	}
	for bit := range 8 * kvmsg.UUIDSize {
		r := append(kvmsg.Record(nil), r...)
		r.UUID()[bit/8] ^= 1 << (bit % 8)
		if _, own := mine.number(r, 1, 2*n); own {
			t.Errorf("took a UUID that differs in bit %d for its own", bit)
		}
	}
}

// The code of an update does not depend on the order in which codes are asked for,
// and neither do codes repeat.
func TestUUIDInAnyOrder(t *testing.T) {
	t.Parallel()
	inTurn := newUUIDMaker()
	var ids [][]byte
	seen := map[string]bool{}
	for i := range 500 {
		id := inTurn.append(nil, uint64(i+1))
		ids = append(ids, id)
		if code := string(id[:8]); seen[code] {
			t.Fatalf("update %d has the code of another one", i+1)
		} else {
			seen[code] = true
		}
	}
	rng := rand.New(rand.NewPCG(1, 9))
	atRandom := &uuidMaker{uuidSecret: inTurn.uuidSecret}
	for range 5000 {
		i := rng.IntN(len(ids))
		if id := atRandom.append(nil, uint64(i+1)); !bytes.Equal(id, ids[i]) {
			t.Fatalf("update %d has UUID %x, and %x out of turn", i+1, ids[i], id)
		}
	}
}

func TestUUIDAllocatesNothing(t *testing.T) {
	m := newUUIDMaker()
	r := m.kvpubOf(3, "key", "value")
	buffer := make([]byte, 0, kvmsg.UUIDSize)
	var sum uint64
	if n := testenv.Allocs(0, 100, func() {
		buffer = m.append(buffer[:0], 3)
		got, _ := m.number(r, 1, 4)
		sum += got
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// append appends the UUID of update n.
func (m *uuidMaker) append(dst []byte, n uint64) []byte {
	high, low := m.code(n)
	dst = binary.BigEndian.AppendUint64(dst, high)
	return binary.BigEndian.AppendUint64(dst, low)
}
