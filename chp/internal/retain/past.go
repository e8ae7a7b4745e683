package retain

import (
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// Past is what was put into a map after a sequence.
type Past struct {
	*store.Tail // nil if that is not known
	Deadlines   *timer.Deadlines
	ID          [16]byte // of the map: see state.State
	Sequence    int64    // up to which the map has everything
	Last        int64    // of its last update; less if sequences were skipped since
	Oldest      int64    // the lowest sequence after which everything is known
}
