package durable

import "testing"

func TestCutBack(t *testing.T) {
	t.Parallel()
	for _, keep := range []uint64{0, 1, 2, 20, 50, 99, 100} {
		dir := t.TempDir()
		l, _ := mustOpen(t, dir)
		fill(t, l, 60, 3)
		flush(t, l)
		fill(t, l, 100, 3)
		flush(t, l)
		if err := l.CutBack(keep); err != nil {
			t.Fatal(keep, err)
		}
		if l.Last() != keep || l.Committed() > keep {
			t.Fatalf("cut to %d: last %d, committed %d", keep, l.Last(), l.Committed())
		}
		readAll(t, l, 1)
		// Restart right away, and after more entries.
		l2, r := mustOpen(t, copyDir(t, dir))
		if r.Last != keep || r.Torn != nil {
			t.Fatalf("cut to %d, restart: %+v", keep, r)
		}
		closeLog(t, l2)
		fill(t, l, keep+70, 3)
		flush(t, l)
		readAll(t, l, 1)
		closeLog(t, l)
		l, r = mustOpen(t, dir)
		if r.Last != keep+70 {
			t.Fatalf("cut to %d, more, restart: %+v", keep, r)
		}
		closeLog(t, l)
	}
}
