package ledger

import (
	"errors"
	"testing"

	"clustermap/internal/testenv"
)

var errClosed = errors.New("closed")

// stage stages and sends one update, as a Set or SetSync does.
func stage(t *testing.T, a *Account, w *Wait) uint64 {
	t.Helper()
	n := a.Stage(false, w)
	if n == 0 {
		t.Fatal("it gave no number")
	}
	a.Send(n)
	return n
}

// result returns the outcome of a wait that must have ended.
func (w *Wait) result(t *testing.T) (int64, error) {
	t.Helper()
	if w.pending() {
		t.Fatalf("the wait for %d has not ended", w.n)
	}
	return w.Result()
}

func (w *Wait) pending() bool {
	select {
	case <-w.Done:
		return false
	default:
		return true
	}
}

func TestEchoesInOrder(t *testing.T) {
	t.Parallel()
	e := new(Account)
	e.Begin(false)
	if w, err := e.Flush(errClosed); w != nil || err != nil {
		t.Fatalf("flush of nothing: %v, %v", w, err)
	}
	first, third := NewWait(), NewWait()
	stage(t, e, first)
	stage(t, e, nil)
	flush, _ := e.Flush(errClosed)
	stage(t, e, third)
	e.Echo(1, 101)
	if seq, err := first.result(t); seq != 101 || err != nil {
		t.Errorf("first: %d, %v", seq, err)
	}
	if !flush.pending() {
		t.Error("Flush ended before all came back")
	}
	e.Echo(2, 105)
	if _, err := flush.result(t); err != nil {
		t.Error(err)
	}
	e.Echo(3, 106)
	if seq, err := third.result(t); seq != 106 || err != nil {
		t.Errorf("third: %d, %v", seq, err)
	}
	if w, err := e.Flush(errClosed); w != nil || err != nil {
		t.Errorf("flush after all: %v, %v", w, err)
	}
}

func TestEchoSkippedIsUncertain(t *testing.T) {
	t.Parallel()
	e := new(Account)
	e.Begin(false)
	skipped := NewWait()
	stage(t, e, nil)
	stage(t, e, skipped)
	stage(t, e, nil)
	e.Echo(1, 1)
	e.Echo(3, 2)
	if _, err := skipped.result(t); !errors.Is(err, ErrUncertain) {
		t.Errorf("skipped update: %v", err)
	}
	// SetSync was told, so Flush has nothing to report.
	if w, err := e.Flush(errClosed); w != nil || err != nil {
		t.Errorf("flush: %v, %v", w, err)
	}
	stage(t, e, nil)
	stage(t, e, nil)
	e.Echo(5, 3)
	if _, err := e.Flush(errClosed); !errors.Is(err, ErrUncertain) {
		t.Errorf("flush after a skipped Set: %v", err)
	}
	if _, err := e.Flush(errClosed); err != nil {
		t.Errorf("reported twice: %v", err)
	}
}

func TestEchoEpochEnds(t *testing.T) {
	t.Parallel()
	e := new(Account)
	e.Begin(false)
	w := NewWait()
	stage(t, e, w)
	stage(t, e, nil)
	flush, _ := e.Flush(errClosed)
	stage(t, e, nil)
	e.Leave()
	if _, err := w.result(t); !errors.Is(err, ErrUncertain) {
		t.Errorf("SetSync: %v", err)
	}
	if _, err := flush.result(t); !errors.Is(err, ErrUncertain) {
		t.Errorf("Flush: %v", err)
	}
	// The third was sent after that Flush, which cannot speak for it.
	if _, err := e.Flush(errClosed); !errors.Is(err, ErrUncertain) {
		t.Errorf("next Flush: %v", err)
	}
	e.Begin(false)
	if n := stage(t, e, nil); n != 4 {
		t.Errorf("number %d, want 4", n)
	}
	e.Echo(2, 9) // late, of the epoch before
	flush, _ = e.Flush(errClosed)
	if flush == nil || !flush.pending() {
		t.Fatal("a late echo counted")
	}
	e.Echo(4, 10)
	if _, err := flush.result(t); err != nil {
		t.Error(err)
	}
}

func TestEchoForgottenWaitIsReportedByFlush(t *testing.T) {
	t.Parallel()
	e := new(Account)
	e.Begin(false)
	w := NewWait()
	stage(t, e, w)
	e.Forget(w, nil)
	e.Leave()
	if !w.pending() {
		t.Error("a forgotten wait was finished")
	}
	if _, err := e.Flush(errClosed); !errors.Is(err, ErrUncertain) {
		t.Errorf("flush: %v", err)
	}
}

func TestEchoesClose(t *testing.T) {
	t.Parallel()
	e := new(Account)
	e.Begin(false)
	w := NewWait()
	stage(t, e, w)
	flush, _ := e.Flush(errClosed)
	e.Close(errClosed)
	for _, w := range []*Wait{w, flush} {
		if _, err := w.result(t); !errors.Is(err, errClosed) {
			t.Errorf("%v, want that of Close", err)
		}
	}
	if _, err := e.Flush(errClosed); !errors.Is(err, errClosed) {
		t.Errorf("flush after close: %v", err)
	}
	if e.Stage(false, nil) != 0 {
		t.Error("gave out a number after close")
	}
}

func TestEchoesAllocateNothing(t *testing.T) {
	e := new(Account)
	e.Begin(false)
	if n := testenv.Allocs(0, 100, func() {
		n := e.Stage(false, nil)
		e.Send(n)
		e.Echo(n, 1)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
