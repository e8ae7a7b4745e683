package snapshot

import (
	"testing"

	"clustermap/internal/buf"
)

// A parcel takes the smallest chunk that holds it, and counts as that.
func TestParcelTakesASmallChunk(t *testing.T) {
	t.Parallel()
	n := New(Options{Memory: 64 << 20})
	for _, size := range []int{300, buf.Small, buf.Small + 1, buf.Large + 1, 200 << 10, 5 << 20} {
		p := &parcel{chain: &chain{}, uses: 1}
		b := &n.small
		if size > buf.Large {
			b = &n.large
		}
		if err := n.allocate(t.Context(), nil, p, size); err != nil {
			t.Fatal(err)
		}
		if got, want := len(p.chunk.Data()), buf.Size(size); got != want || b.used != want {
			t.Errorf("%d bytes are in a chunk of %d and count as %d, want %d", size, got, b.used, want)
		}
		if n.free(p); b.used != 0 {
			t.Errorf("%d bytes count after the end", b.used)
		}
	}
}
