package engine

import (
	"clustermap/internal/link"
	"errors"
	"os"
	"testing"
)

// TestLoanEnding: a receive call that has its message when the connection is told
// to end gives the connection back, though it has nothing against going on: the reader waits.
func TestLoanEnding(t *testing.T) {
	t.Parallel()
	failed := errors.New("read failed")
	for _, got := range []error{errLent, link.ErrNothing, os.ErrDeadlineExceeded, failed} {
		for _, ending := range []bool{false, true} {
			r := newRecorder(t, Config{}).reader()
			if ending {
				r.conn.Close(nil)
			}
			found, again, err := (&loan{reader: r}).result(got)
			if want := got == errLent; found != want {
				t.Errorf("%v, ending %v: a message was found: %v", got, ending, found)
			}
			if want := !ending && (got == errLent || got == link.ErrNothing); again != want {
				t.Errorf("%v, ending %v: the loan goes on: %v", got, ending, again)
			}
			var want error
			if got == failed || got == os.ErrDeadlineExceeded && ending {
				want = got
			}
			if err != want {
				t.Errorf("%v, ending %v: given back with %v, want %v", got, ending, err, want)
			}
		}
	}
}
