package testenv

import (
	"sync/atomic"
	"testing"
)

// TestBlocked: it returns when the call waits where it should, and not before.
func TestBlocked(t *testing.T) {
	t.Parallel()
	first, second := make(chan struct{}), make(chan struct{})
	var reached atomic.Bool
	there := func() {
		reached.Store(true)
		waitForIt(second)
	}
	begun := make(chan struct{})
	go func() {
		<-begun
		close(first)
	}()
	result := Blocked(t, "testenv.waitForIt", func() int {
		close(begun)
		<-first // not there
		there()
		return 7
	})
	if !reached.Load() || len(result) != 0 {
		t.Error("the call does not wait yet")
	}
	close(second)
	if n := <-result; n != 7 {
		t.Errorf("it returned %d", n)
	}
	if n := <-Blocked(t, "testenv.waitForIt", func() int { return 8 }); n != 8 {
		t.Errorf("one that does not wait returned %d", n)
	}
}

//go:noinline
func waitForIt(c chan struct{}) { <-c }
