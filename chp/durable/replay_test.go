package durable

import "testing"

// TestRestarts changes segments and restarts at every number of entries.
func TestRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for last := uint64(0); last < 90; last++ {
		l, r := mustOpen(t, dir)
		if r.Last != last || r.Torn != nil {
			t.Fatalf("restart %d: %+v", last, r)
		}
		fill(t, l, last+1, 1)
		closeLog(t, l)
	}
}
