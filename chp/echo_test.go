package chp

import (
	"errors"
	"testing"

	"clustermap/internal/testenv"
)

// sendOff reserves and sends one update, as a Set or SetSync does.
func sendOff(t *testing.T, e *echoes, w *echoWait) uint64 {
	t.Helper()
	n := e.number(w)
	if n == 0 {
		t.Fatal("no number given out")
	}
	return n
}

func newSync() *echoWait { return newEchoWait() }

// result returns the outcome of a wait that must have ended.
func (w *echoWait) result(t *testing.T) (int64, error) {
	t.Helper()
	select {
	case <-w.done:
		return w.seq, w.err
	default:
		t.Fatalf("wait for %d has not ended", w.n)
		return 0, nil
	}
}

func (w *echoWait) pending() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

func TestEchoesInOrder(t *testing.T) {
	t.Parallel()
	e := new(echoes)
	e.begin(false)
	if w, err := e.flush(); w != nil || err != nil {
		t.Fatalf("flush of nothing: %v, %v", w, err)
	}
	first, third := newSync(), newSync()
	sendOff(t, e, first)
	sendOff(t, e, nil)
	flush, _ := e.flush()
	sendOff(t, e, third)
	e.came(1, 101)
	if seq, err := first.result(t); seq != 101 || err != nil {
		t.Errorf("first: %d, %v", seq, err)
	}
	if !flush.pending() {
		t.Error("Flush ended before all came back")
	}
	e.came(2, 105)
	if _, err := flush.result(t); err != nil {
		t.Error(err)
	}
	e.came(3, 106)
	if seq, err := third.result(t); seq != 106 || err != nil {
		t.Errorf("third: %d, %v", seq, err)
	}
	if w, err := e.flush(); w != nil || err != nil {
		t.Errorf("flush after all: %v, %v", w, err)
	}
}

func TestEchoSkippedIsUncertain(t *testing.T) {
	t.Parallel()
	e := new(echoes)
	e.begin(false)
	skipped := newSync()
	sendOff(t, e, nil)
	sendOff(t, e, skipped)
	sendOff(t, e, nil)
	e.came(1, 1)
	e.came(3, 2)
	if _, err := skipped.result(t); !errors.Is(err, ErrUncertain) {
		t.Errorf("skipped update: %v", err)
	}
	// SetSync was told, so Flush has nothing to report.
	if w, err := e.flush(); w != nil || err != nil {
		t.Errorf("flush: %v, %v", w, err)
	}
	sendOff(t, e, nil)
	sendOff(t, e, nil)
	e.came(5, 3)
	if _, err := e.flush(); !errors.Is(err, ErrUncertain) {
		t.Errorf("flush after a skipped Set: %v", err)
	}
	if _, err := e.flush(); err != nil {
		t.Errorf("reported twice: %v", err)
	}
}

func TestEchoEpochEnds(t *testing.T) {
	t.Parallel()
	e := new(echoes)
	e.begin(false)
	w := newSync()
	sendOff(t, e, w)
	sendOff(t, e, nil)
	flush, _ := e.flush()
	sendOff(t, e, nil)
	e.end(e.sent)
	if _, err := w.result(t); !errors.Is(err, ErrUncertain) {
		t.Errorf("SetSync: %v", err)
	}
	if _, err := flush.result(t); !errors.Is(err, ErrUncertain) {
		t.Errorf("Flush: %v", err)
	}
	// The third was sent after that Flush, which cannot speak for it.
	if _, err := e.flush(); !errors.Is(err, ErrUncertain) {
		t.Errorf("next Flush: %v", err)
	}
	e.begin(false)
	if n := sendOff(t, e, nil); n != 4 {
		t.Errorf("number %d, want 4", n)
	}
	e.came(2, 9) // late, of the epoch before
	flush, _ = e.flush()
	if flush == nil || !flush.pending() {
		t.Fatal("a late echo counted")
	}
	e.came(4, 10)
	if _, err := flush.result(t); err != nil {
		t.Error(err)
	}
}

func TestEchoForgottenWaitIsReportedByFlush(t *testing.T) {
	t.Parallel()
	e := new(echoes)
	e.begin(false)
	w := newSync()
	sendOff(t, e, w)
	e.forget(w)
	e.end(e.sent)
	if !w.pending() {
		t.Error("a forgotten wait was finished")
	}
	if _, err := e.flush(); !errors.Is(err, ErrUncertain) {
		t.Errorf("flush: %v", err)
	}
}

func TestEchoesClose(t *testing.T) {
	t.Parallel()
	e := new(echoes)
	e.begin(false)
	w := newSync()
	sendOff(t, e, w)
	flush, _ := e.flush()
	e.close()
	for _, w := range []*echoWait{w, flush} {
		if _, err := w.result(t); !errors.Is(err, ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
	if _, err := e.flush(); !errors.Is(err, ErrClosed) {
		t.Errorf("flush after close: %v", err)
	}
	if e.number(nil) != 0 {
		t.Error("gave out a number after close")
	}
}

func TestEchoesAllocateNothing(t *testing.T) {
	e := new(echoes)
	e.begin(false)
	if n := testenv.Allocs(0, 100, func() {
		e.came(e.number(nil), 1)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
