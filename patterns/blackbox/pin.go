package blackbox

import (
	"runtime"
	"sync/atomic"
)

// thread is the thread of a goroutine.
type thread struct {
	wanted int          // the assigned core, or -1
	bound  atomic.Int64 // the core to which it is bound, or -1
}

func (t *thread) init() {
	t.wanted = -1
	t.bound.Store(-1)
}

func (t *thread) setCore(core int) { t.wanted = core }

func (t *thread) core() int { return int(t.bound.Load()) }

// pin locks the calling goroutine to a thread that is bound to its core. The thread ends
// with the goroutine. If binding fails, the goroutine runs on any core.
func (t *thread) pin() {
	if t.wanted < 0 {
		return
	}
	runtime.LockOSThread()
	if !bindThread(t.wanted) {
		runtime.UnlockOSThread()
		return
	}
	t.bound.Store(int64(t.wanted))
}
