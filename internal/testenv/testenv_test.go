package testenv

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestContext: a context lasts until shortly before the test binary's deadline,
// whenever it is made, and through the cleanup functions that come after it.
func TestContext(t *testing.T) {
	end, ok := t.Deadline()
	if !ok {
		t.Skip("the test binary has no deadline")
	}
	left := time.Until(end)
	t.Run("deadline", func(t *testing.T) {
		ctx := Context(t)
		t.Cleanup(func() {
			if ctx.Err() != nil {
				t.Errorf("in a cleanup function: %v", ctx.Err())
			}
		})
		got, ok := ctx.Deadline()
		if early := end.Sub(got); !ok || early > reserve || early > left/5 || early <= 0 {
			t.Errorf("deadline %v before that of the test binary, which had %v left", early, left)
		}
	})
	// With less than the reserve left, most of that is still the tests'.
	if err := Context(&fake{TB: t, end: time.Now().Add(reserve / 2)}).Err(); err != nil {
		t.Errorf("with %v left: %v", reserve/2, err)
	}
}

// TestContextOfBenchmark: a benchmark has no deadline, and its context has none.
func TestContextOfBenchmark(t *testing.T) {
	testing.Benchmark(func(b *testing.B) {
		ctx := Context(b)
		if end, ok := ctx.Deadline(); ok || ctx.Err() != nil {
			t.Errorf("the context ends at %v: %v", end, ctx.Err())
		}
	})
}

// TestWaitInVain: a wait that does not end in time fails with the stacks.
func TestWaitInVain(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	for what, wait := range map[string]func(testing.TB){
		"never: it comes":   func(t testing.TB) { Eventually(t, "it comes", func() bool { return false }) },
		"hangs: it returns": func(t testing.TB) { Within(t, "it returns", func() { <-forever }) },
	} {
		f := &fake{TB: t, end: time.Now().Add(20 * time.Millisecond)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			wait(f)
		}()
		<-done
		if !strings.HasPrefix(f.said, what) || !strings.Contains(f.said, "goroutine ") {
			t.Errorf("%q says %.200q", what, f.said)
		}
	}
	Eventually(t, "a condition that is true at once", func() bool { return true })
	Within(t, "a function that returns", func() {})
}

// fake is a test with a deadline of its own, which notes why it ended.
type fake struct {
	testing.TB
	end  time.Time
	said string
}

func (f *fake) Helper() {}

func (f *fake) Deadline() (time.Time, bool) { return f.end, true }

func (f *fake) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
