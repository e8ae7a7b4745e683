package wire

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// uuidOf returns a UUID.
func uuidOf(n int) (id [kvmsg.UUIDSize]byte) {
	binary.BigEndian.PutUint32(id[:], uint32(n))
	return id
}

// Messages of three frames become records and back; a message of another form is refused,
// and no part of it is kept.
func TestModelFrames(t *testing.T) {
	t.Parallel()
	large := make([]byte, 300)
	sent := newSentUpdates(10)
	id := uuidOf(1)
	for _, value := range [][]byte{nil, []byte("v"), large} {
		three := zmtp.AppendMessage(nil, []byte("k"), []byte("\x00\x00\x00\x00\x00\x00\x00\x07"), value)
		wide, err := appendWide(nil, three, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := kvmsg.Record(wide)
		if string(r.Key()) != "k" || r.Seq() != 7 || len(r.UUID())+len(r.Props()) != 0 || !slices.Equal(r.Value(), value) || r.Size() != len(wide) {
			t.Errorf("%q becomes %q", three, wide)
		}
		if len(wide) > len(three)+widened {
			t.Errorf("%d bytes more", len(wide)-len(three))
		}
		if back := appendThree(nil, r); !slices.Equal(back, three) {
			t.Errorf("%q comes back as %q", three, back)
		}
		sent.note(kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], []byte("a=b\n"), value))
		if wide, err = appendWide(nil, three, sent); err != nil || string(kvmsg.Record(wide).UUID()) != string(id[:]) {
			t.Errorf("%q has no UUID", wide)
		}
		if wide, err = appendWide(nil, three, sent); err != nil || len(kvmsg.Record(wide).UUID()) > 0 {
			t.Errorf("%q has a UUID once more", wide)
		}
	}
	eight := make([]byte, 8)
	for _, frames := range [][][]byte{{eight}, {eight, eight}, {eight, eight, eight, eight}, {eight, eight[:4], eight}, {eight, eight, nil, nil, eight}} {
		if wide, err := appendWide(nil, zmtp.AppendMessage(nil, frames...), nil); err == nil || len(wide) > 0 {
			t.Errorf("%d frames become %q, %v", len(frames), wide, err)
		}
	}
	whole := zmtp.AppendMessage(nil, []byte("key"), eight, []byte("value"))
	for range 20_000 {
		m := slices.Clone(whole)
		for range 1 + rand.IntN(3) {
			m[rand.IntN(len(m))] = byte(rand.Uint32())
		}
		m = m[:rand.IntN(len(m)+1)]
		if wide, err := appendWide(nil, m, nil); err == nil {
			if _, _, _, err := kvmsg.Inspect(wide, kvmsg.FromServer, 0); len(wide) > len(m)+widened {
				t.Fatalf("%q becomes %q, %v", m, wide, err)
			}
		}
	}
}

// A session remembers a bounded number of the updates that it sent, and each update that
// comes back ends the wait for all before it.
func TestModelSentUpdates(t *testing.T) {
	t.Parallel()
	const most = 500
	u := newSentUpdates(most)
	key := func(i int) []byte { return fmt.Append(nil, "k", i) }
	note := func(i, n int) {
		id := uuidOf(n)
		u.note(kvmsg.AppendRecord(nil, key(i), 0, id[:], nil, []byte("v")))
	}
	for i := range 3 * most {
		note(i, i+1)
	}
	if n := u.queue.Len(); n != most || len(u.count) != n {
		t.Errorf("%d updates are remembered, with %d hashes", n, len(u.count))
	}
	if _, ok := u.match(key(0), []byte("v")); ok {
		t.Error("the oldest is remembered")
	}
	last := 3*most - 1
	for _, i := range []int{last - 10, last - 1} {
		if id, ok := u.match(key(i), []byte("v")); !ok || id != uuidOf(i+1) {
			t.Errorf("update %d is not remembered", i)
		}
	}
	if _, ok := u.match(key(last-5), []byte("v")); ok || len(u.count) != 1 {
		t.Errorf("%d updates are remembered, want the last", len(u.count))
	}
}
