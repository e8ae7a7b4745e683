package store

import (
	"fmt"
	"testing"
)

// The index gets smaller when most of the keys have gone.
func TestIndexShrinks(t *testing.T) {
	t.Parallel()
	const n = 120_000
	st := New(Options{})
	key := func(i int) []byte { return fmt.Appendf(nil, "/key/%d", i) }
	for i := range n {
		st.Put(key(i), int64(i+1), nil, nil, []byte("v"))
	}
	measure := func() (slots int) {
		for i := range st.tables {
			if table := st.tables[i].Load(); table != nil {
				slots += len(table.slots)
			}
		}
		return slots
	}
	slots := measure()
	for i := range n {
		if i%10 != 0 {
			st.Put(key(i), 0, nil, nil, nil)
		}
	}
	// No table is less than an eighth full. By that a quarter of the slots is left on
	// average; keys fall into the tables by a random hash, so a few stay larger.
	for i := range st.tables {
		if n := len(st.tables[i].Load().slots); n > minTable && int(st.counts[i].used) < n/8 {
			t.Errorf("table %d has %d slots for %d keys", i, n, st.counts[i].used)
		}
	}
	if s := measure(); s > slots/3 {
		t.Errorf("with a tenth of the keys: %d slots of %d", s, slots)
	}
}
