package blackbox

import (
	"runtime"
	"sync/atomic"
)

// thread is where a goroutine runs.
type thread struct {
	wanted int          // core; -1: any
	bound  atomic.Int64 // core, once it is bound to one; -1 before
}

func (t *thread) init() {
	t.wanted = -1
	t.bound.Store(-1)
}

func (t *thread) wish(core int) { t.wanted = core }

func (t *thread) core() int { return int(t.bound.Load()) }

// pin gives the calling goroutine a thread on its core, until it ends: the thread
// ends with it. If that is not possible any more, the goroutine runs anywhere.
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
