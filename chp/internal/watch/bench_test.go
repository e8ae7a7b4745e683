package watch

import (
	"fmt"
	"testing"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/store"
)

// BenchmarkResynchronize is the difference of two states of which 1 in 100 keys has changed,
// per key.
func BenchmarkResynchronize(b *testing.B) {
	const keys = 1_000_000
	before, after := store.New(store.Options{}), store.New(store.Options{})
	for i := range keys {
		p := pub{fmt.Sprintf("/bench/%07d", i), int64(i + 1), "a value of 32 bytes ............"}
		put(before, p)
		switch i % 1000 {
		case 1, 2:
			p.value = "new"
		case 500:
			p.value = ""
		}
		put(after, p)
	}
	all := subtree.New(nil)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += keys {
		d := &change{before: NewState(before, nil, 0), after: NewState(after, nil, 0)}
		d.open()
		var e Event
		for d.next(&e, &all) {
		}
		d.release()
	}
}
