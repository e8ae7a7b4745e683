package ledger

import "testing"

// A client that repeats a number, or goes back, makes the server remember no more than others.
func TestMadeIsBounded(t *testing.T) {
	t.Parallel()
	for _, number := range []func(i int) uint64{
		func(int) uint64 { return 1 },
		func(i int) uint64 { return 1<<62 - 1 - uint64(i) },
		func(i int) uint64 { return uint64(2*i + 1) },
	} {
		var o Clients
		for i := range 10 * Window {
			o.Make(ID{1}, number(i), int64(3*i+1))
		}
		if n := len(o.ByID[ID{1}].made); n > 2*Window || n != o.runs {
			t.Errorf("%d runs, and %d are counted", n, o.runs)
		}
	}
}
