package commit

import (
	"bytes"
	"testing"
)

// framingLog writes its header in front of the records of each entry.
type framingLog struct {
	fakeLog
	header []byte
	framed [][]byte
}

func (l *framingLog) Append(entries ...Entry) error {
	for i := range entries {
		b := entries[i].Framed(len(l.header))
		copy(b, l.header)
		l.framed = append(l.framed, bytes.Clone(b))
	}
	return l.fakeLog.Append(entries...)
}

// TestFramed: the room in front of the records of an entry is free for each of them, and
// belongs to no other slice.
func TestFramed(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 17, EntryRoom} {
		log := &framingLog{header: bytes.Repeat([]byte{0xEE}, size)}
		g := NewGroup(log, GroupOptions{Policy: Never()})
		const n = 50
		records := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 1+i*100) }
		for i := range n {
			if _, err := g.AppendParts(Entry{Records: records(i)[:1]}, records(i)[1:]); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if len(log.framed) != n || len(log.entries) != n {
			t.Fatal(len(log.framed), len(log.entries), "entries")
		}
		for i := range n {
			if want := append(bytes.Clone(log.header), records(i)...); !bytes.Equal(log.framed[i], want) {
				t.Fatalf("header of %d bytes: entry %d: %d bytes", size, i, len(log.framed[i]))
			}
			if !bytes.Equal(log.entries[i].Records, records(i)) {
				t.Fatalf("header of %d bytes: entry %d has other records", size, i)
			}
		}
	}
}

// TestFramedNot: an entry has no room for too large a header, without a Group, or with other
// records than those that the Group has copied.
func TestFramedNot(t *testing.T) {
	t.Parallel()
	framed := make([]byte, EntryRoom+5)
	for name, c := range map[string]struct {
		e Entry
		n int
	}{
		"large header":  {Entry{Records: framed[EntryRoom:], framed: framed}, EntryRoom + 1},
		"no group":      {Entry{Records: framed}, 1},
		"other records": {Entry{Records: make([]byte, 5), framed: framed}, 1},
		"fewer records": {Entry{Records: framed[EntryRoom:][:4], framed: framed}, 1},
		"no records":    {Entry{framed: framed[:EntryRoom]}, 1},
	} {
		if b := c.e.Framed(c.n); b != nil {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
}
