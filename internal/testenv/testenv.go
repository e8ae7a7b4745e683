// Package testenv is shared by the tests of all packages. It limits how long tests
// wait, and reports the stacks of all goroutines if a wait fails.
//
// The limits only end tests that hang. No test depends on their lengths.
package testenv

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Hang is how long a test waits for a single event before it fails.
const Hang = 3 * time.Minute

// AnyPort is the endpoint to bind when the port does not matter.
const AnyPort = "tcp://127.0.0.1:*"

// reserve is how long before the test binary's deadline tests give up, so that they can
// clean up and report why.
const reserve = 30 * time.Second

// Context returns a context for a whole test. It ends with the test, after the cleanup
// functions that the test registers later, or, if the test hangs, half a minute before
// the test binary's deadline (go test -timeout). So subtests that call t.Parallel may
// use their parent's context: it does not end while they wait to run. The context of a
// benchmark or fuzz target has no deadline.
//
// At the deadline, the stacks of all goroutines are printed to standard error, once.
func Context(t testing.TB) context.Context {
	t.Helper()
	end, ok := deadline(t)
	if !ok {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		return ctx
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	stop := context.AfterFunc(ctx, func() { tell(t.Name()) })
	t.Cleanup(func() {
		stop()
		cancel()
	})
	return ctx
}

var told sync.Once

func tell(name string) {
	told.Do(func() {
		fmt.Fprintf(os.Stderr, "%s: the test timeout is near\n%s", name, stacks())
	})
}

// deadline returns when the tests give up, if the test binary has a deadline.
func deadline(t testing.TB) (end time.Time, ok bool) {
	d, has := t.(interface{ Deadline() (time.Time, bool) })
	if !has {
		return time.Time{}, false
	}
	end, ok = d.Deadline()
	// With a short -timeout, reserve at most a tenth of it.
	return end.Add(-min(reserve, time.Until(end)/10)), ok
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually polls a condition until it is true. If that takes longer than [Hang], it
// ends the test with the stacks of all goroutines.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := until(t); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s\n%s", what, stacks())
		}
	}
}

// Within runs f in a goroutine and waits for it to return. If that takes longer than
// [Hang], it ends the test with the stacks of all goroutines.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Until(until(t))):
		t.Fatalf("hangs: %s\n%s", what, stacks())
	}
}

// until returns when a wait that begins now ends.
func until(t testing.TB) time.Time {
	end := time.Now().Add(Hang)
	if last, ok := deadline(t); ok && last.Before(end) {
		return last
	}
	return end
}

// stacks returns the stacks of all goroutines, up to a megabyte.
func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// Rounds returns how many rounds a test runs: n, or a fifth of that under the race
// detector, which makes each round about ten times slower.
func Rounds(n int) int {
	if RaceDetector {
		return max(n/5, 1)
	}
	return n
}

// Alone skips a test with a single goroutine under the race detector, which finds
// nothing in it and makes it about ten times slower.
func Alone(t *testing.T) {
	t.Helper()
	if RaceDetector {
		t.Skip("single goroutine: nothing for the race detector to find")
	}
}
