package testenv

import (
	"bytes"
	"runtime"
	"testing"
)

// Blocked calls f in a goroutine, and returns when that waits within the named function,
// such as "chp.(*Server).Set", for a channel or a condition, or when f has returned. The
// channel returned gets what f returns. So a test knows that a call waits before it does
// what ends it, however long the call takes to come to that.
func Blocked[T any](t testing.TB, function string, f func() T) <-chan T {
	t.Helper()
	result, number := make(chan T, 1), make(chan []byte, 1)
	go func() {
		number <- goroutine()
		result <- f()
	}()
	n := <-number
	Eventually(t, "a call waits in "+function, func() bool {
		return len(result) > 0 || waits(allStacks(), n, function)
	})
	return result
}

// goroutine returns how the stack of the goroutine that calls it begins, as "goroutine 7 ".
func goroutine() []byte {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	return bytes.Join(bytes.SplitAfterN(b, []byte(" "), 3)[:2], nil)
}

// waits reports whether among stacks the goroutine whose stack begins with head waits
// within a function.
func waits(stacks, head []byte, function string) bool {
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if !bytes.HasPrefix(stack, head) {
			continue
		}
		_, rest, _ := bytes.Cut(stack, []byte("["))
		for _, reason := range []string{"select", "chan receive", "chan send", "sync.Cond.Wait", "sync.WaitGroup.Wait"} {
			if bytes.HasPrefix(rest, []byte(reason)) {
				return bytes.Contains(rest, []byte(function+"("))
			}
		}
	}
	return false
}

// allStacks returns the stacks of all goroutines, however many they are.
func allStacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return buf[:n]
		}
	}
}
