package chp

import (
	"strings"
	"testing"
)

// testRecords returns records with parts of all sizes that matter; long says whether
// keys may be longer than CHP allows.
func testRecords(long bool) (all []record) {
	keys := []string{"a", "b", "/a/b", strings.Repeat("k", 255)}
	if long {
		keys = append(keys, "", strings.Repeat("k", 256), strings.Repeat("k", 1000))
	}
	for _, key := range keys {
		for _, uuid := range []string{"", testUUID} {
			for _, props := range []string{"", "a=b\n", "a=" + strings.Repeat("b", 400) + "\n"} {
				for _, value := range []string{"", "v", strings.Repeat("v", 255), strings.Repeat("v", 256)} {
					r := record(appendRecord(nil, []byte(key), 7, []byte(uuid), []byte(props), []byte(value)))
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
		if len(r) != recordSize(len(r.key()), len(r.uuid()), len(r.props()), len(r.value())) || r.size() != len(r) {
			t.Fatalf("%q has %d octets, size says %d", r, len(r), r.size())
		}
		if r.seq() != 7 {
			t.Fatalf("%q is #%d", r, r.seq())
		}
		// As it lies in a segment: with others behind it.
		more := append(r[:len(r):len(r)], "another record"...)
		if got := more.valueBehind(len(r.key())); string(got) != string(r.value()) {
			t.Fatalf("value of %q is %q", r, got)
		}
		if !more.hasKey(r.key()) || more.hasKey(append([]byte("x"), r.key()...)) || len(r.key()) > 0 && more.hasKey(r.key()[1:]) {
			t.Fatalf("%q has another key", r)
		}
		more.setSeq(-1)
		if more.seq() != -1 || string(more.value()) != string(r.value()) || string(more.uuid()) != string(r.uuid()) {
			t.Fatalf("the sequence of %q overwrites what is beside it", r)
		}
	}
}

func TestSameKey(t *testing.T) {
	t.Parallel()
	all := testRecords(false)
	for _, a := range all {
		for _, b := range all {
			size, same := a.sameKey(b)
			if same != (string(a.key()) == string(b.key())) || same && size != len(b) {
				t.Fatalf("%q beside %q: %v, size %d", a, b, same, size)
			}
		}
	}
}
