package buf

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// reserve is memory that nothing uses or touches, so that it takes address space only. A program
// that receives small messages one by one allocates them, and often has little else in its heap,
// which the garbage collector lets grow to 4 MiB: it runs several hundred times a second, and
// returns pages to the system that are faulted in again at once. With the reserve the heap grows
// by twice its size before a collection is due. In a program with a larger heap it
// changes little.
//
// It is there while bytes are allocated fast: a step of them takes no longer than stepTime.
// Finalizers say when there was a collection, for the end of it.
type reserve struct {
	now   func() time.Time
	limit int64 // reserveLimit, except in tests

	bytes atomic.Int64 // allocated since the last step

	mu     sync.Mutex
	last   time.Time // step
	memory []byte
}

// messages is the reserve of small messages.
var messages = reserve{now: time.Now, limit: reserveLimit}

// Allocated records that so many bytes were allocated for messages that the application gets.
func Allocated(n int) { messages.allocated(n) }

func (r *reserve) allocated(n int) {
	if r.bytes.Add(int64(n)) >= reserveStep {
		r.step()
	}
}

func (r *reserve) step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes.Load() < reserveStep {
		return // another goroutine has just made it
	}
	r.bytes.Store(0)
	fast := r.fast()
	r.last = r.now()
	if fast && r.memory == nil && debug.SetMemoryLimit(-1) >= r.limit { // which changes nothing
		r.memory = make([]byte, reserveSize)
		r.await()
	}
}

// fast reports whether the last step was a short time ago. mu must be held.
func (r *reserve) fast() bool { return r.now().Sub(r.last) <= stepTime }

// await has collected called when the garbage was collected.
func (r *reserve) await() {
	type garbage struct{ _ *reserve } // with a pointer, it shares memory with nothing else
	runtime.SetFinalizer(new(garbage), func(*garbage) { r.collected() })
}

func (r *reserve) collected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fast() {
		r.await()
	} else {
		r.memory = nil
	}
}
