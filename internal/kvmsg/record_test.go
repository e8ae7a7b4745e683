package kvmsg

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// testRecords returns records with parts of all sizes that matter; long says whether
// keys may be longer than CHP allows.
func testRecords(long bool) (all []Record) {
	keys := []string{"a", "b", "/a/b", strings.Repeat("k", 255)}
	if long {
		keys = append(keys, "", strings.Repeat("k", 256), strings.Repeat("k", 1000))
	}
	for _, key := range keys {
		for _, uuid := range []string{"", testUUID} {
			for _, props := range []string{"", "a=b\n", "a=" + strings.Repeat("b", 400) + "\n"} {
				for _, value := range []string{"", "v", strings.Repeat("v", 255), strings.Repeat("v", 256)} {
					r := Record(AppendRecord(nil, []byte(key), 7, []byte(uuid), []byte(props), []byte(value)))
					all = append(all, r)
				}
			}
		}
	}
	return all
}

func TestRecord(t *testing.T) {
	t.Parallel()
	for _, r := range testRecords(true) {
		if len(r) != RecordSize(len(r.Key()), len(r.UUID()), len(r.Props()), len(r.Value())) || r.Size() != len(r) {
			t.Fatalf("%q has %d bytes, size says %d", r, len(r), r.Size())
		}
		if r.Seq() != 7 {
			t.Fatalf("%q is #%d", r, r.Seq())
		}
		// As it lies in a segment: with others behind it.
		more := append(r[:len(r):len(r)], "another record"...)
		if got := more.ValueBehind(len(r.Key())); string(got) != string(r.Value()) {
			t.Fatalf("value of %q is %q", r, got)
		}
		if !more.HasKey(r.Key()) || more.HasKey(append([]byte("x"), r.Key()...)) || len(r.Key()) > 0 && more.HasKey(r.Key()[1:]) {
			t.Fatalf("%q has another key", r)
		}
		// In the last record of a segment, too.
		for _, m := range []Record{more, r} {
			if value, same := m.ValueOf(r.Key()); !same || string(value) != string(r.Value()) || cap(value) != len(value) {
				t.Fatalf("value of %q is %q, %v", r, value, same)
			}
			for _, other := range [][]byte{append([]byte("x"), r.Key()...), append(bytes.Clone(r.Key()), 'x'), bytes.Repeat([]byte("x"), len(r.Key())), nil} {
				if value, same := m.ValueOf(other); same != (string(other) == string(r.Key())) || !same && value != nil {
					t.Fatalf("%q has the value %q of key %q", r, value, other)
				}
			}
		}
		more.SetSeq(-1)
		if more.Seq() != -1 || string(more.Value()) != string(r.Value()) || string(more.UUID()) != string(r.UUID()) {
			t.Fatalf("the sequence of %q overwrites what is beside it", r)
		}
	}
}

func TestSameKey(t *testing.T) {
	t.Parallel()
	all := testRecords(false)
	for _, a := range all {
		for _, b := range all {
			size, same := a.SameKey(b)
			if same != (string(a.Key()) == string(b.Key())) || same && size != len(b) {
				t.Fatalf("%q beside %q: %v, size %d", a, b, same, size)
			}
		}
	}
}

// TestAppendUpdate: it appends the same bytes as AppendRecord, with room and without.
func TestAppendUpdate(t *testing.T) {
	t.Parallel()
	id := []byte("0123456789abcdef")
	high, low := binary.BigEndian.Uint64(id), binary.BigEndian.Uint64(id[8:])
	for _, key := range []int{1, 7, 255} {
		for _, props := range []string{"", "ttl=3\n"} {
			for _, value := range []int{0, 1, 32, 255, 256} {
				k, v := bytes.Repeat([]byte("k"), key), bytes.Repeat([]byte("v"), value)
				want := AppendRecord([]byte("before"), k, 7<<40+9, id, []byte(props), v)
				for _, room := range []int{len(want), len(want) - 1} {
					dst := append(bytes.Repeat([]byte{0xDB}, room)[:0], "before"...)
					if got := AppendUpdate(dst, k, 7<<40+9, high, low, []byte(props), v); !bytes.Equal(got, want) {
						t.Errorf("key of %d, properties %q, value of %d: %q, want %q", key, props, value, got, want)
					}
				}
			}
		}
	}
}
