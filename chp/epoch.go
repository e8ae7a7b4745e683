package chp

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Readers take no lock, so a segment that nothing points to any more may still
// be under the eyes of a reader that found it a moment ago. Before its octets
// are used again, every reader that was inside at that moment must have left.
// This file knows when that is: it is sleepable RCU with polling in the place of
// waiting, for a writer must never stop for a reader.
//
// A reader adds one to a counter when it enters, and takes it away when it
// leaves. There are two banks of counters, and many counters a bank so that
// readers on different cores seldom share a cache line. A reader takes any
// counter of the bank that is current when it enters.
//
// The claim is this: if after some moment T every counter of both banks has
// been seen at zero, each at a time of its own, then no reader that entered
// before T is still inside. For such a reader keeps its own counter above zero
// from before T until it leaves, so the look that found that counter at zero
// came after it left. It is as true that a reader which does enter its counter
// after that look cannot find what was unlinked before T: the atomic operations
// of Go have one order, and in it stand, one after the other, the store that
// unlinked the location, T, the look at the counter, the reader's addition, the
// reader's load of the slot.
//
// That would be enough with one bank, if a counter under constant use ever
// came by zero. The second bank is there to make sure it does:
//
//   - drain the bank that is not current: nobody enters it but stragglers;
//   - make it current;
//   - drain the other one: now nobody enters that one but stragglers.
//
// A straggler is a reader that loaded the number of the current bank and was
// held up before its addition. Take a reader that read "bank 0" while bank 0
// was current, and then lost its core. The writer makes bank 1 current, sees
// bank 0 at zero, and recycles the segment. Now the straggler goes on and adds
// to bank 0, which nobody watches. It does no harm to this grace period: it
// loads its slot now, after the segment has been unlinked. But it will be in
// bank 0 when the next grace period begins with bank 1 current, and that one
// must wait for it; hence a period drains both banks, the idle one first, and
// not only the one that was current. The rejected design did only that.
//
// One set of counters serves all stores of the process, for a process may hold
// thousands of small ones. A slow reader of one store thus delays recycling in
// the others; recycling is all that it delays, and log.go lets go of memory that
// waits too long.
type epoch struct {
	bank    atomic.Uint32 // the current bank, 0 or 1
	_       [124]byte
	stripes []stripe
	shift   uint8 // what leaves as many bits of 64 as number the stripes

	// state counts the grace periods: even between two of them, odd during one.
	state atomic.Uint64

	mu      sync.Mutex // held to advance; never waited for
	flipped bool       // the current period is in its second half
	drained int        // stripes of the bank being drained seen at zero so far
}

// stripe is one counter of each bank. The two share a line, for at any time
// almost all readers are in one bank. 128 octets since cores fetch lines in pairs.
type stripe struct {
	inside [2]atomic.Int64
	_      [112]byte
}

// readers is the epoch of all stores of the process.
var readers = newEpoch()

func newEpoch() *epoch {
	n := powerOfTwo(max(64, 8*runtime.NumCPU()))
	return &epoch{stripes: make([]stripe, n), shift: uint8(64 - bits.TrailingZeros(uint(n)))}
}

// enter begins a reader's stay, which must be short and must not block. The
// result is what leave wants.
//
// The stripe is chosen by where the stack is: a goroutine comes back to the same
// counter, in the cache of the core that it runs on, and others have others. (A
// random one was measured: it takes longer to choose, and half of the time
// another core has it.)
func (e *epoch) enter() *atomic.Int64 {
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11
	c := &e.stripes[stack*0x9E3779B97F4A7C15>>(e.shift&63)].inside[e.bank.Load()&1]
	c.Add(1)
	return c
}

// leave ends the stay that enter began.
func leave(c *atomic.Int64) { c.Add(-1) }

// ticket returns what to wait for with passed: a grace period that begins after
// now. If one is under way it may have looked at some counters already, so the
// one after it is meant.
func (e *epoch) ticket() uint64 {
	return (e.state.Load() + 3) &^ 1
}

// passed reports whether the grace period of a ticket is over, after it has done
// what can be done towards it without waiting.
func (e *epoch) passed(ticket uint64) bool {
	if e.state.Load() >= ticket {
		return true
	}
	if !e.mu.TryLock() {
		return false // another store is doing this very work
	}
	defer e.mu.Unlock()
	for e.state.Load() < ticket {
		if e.state.Load()&1 == 0 {
			e.state.Add(1)
		}
		if !e.advance() {
			return false
		}
		e.state.Add(1)
	}
	return true
}

// advance carries the current period on until it is over, or until it meets a
// reader.
func (e *epoch) advance() bool {
	for {
		// The bank to drain is in both halves the one that is not current.
		draining := e.bank.Load()&1 ^ 1
		for e.drained < len(e.stripes) {
			if e.stripes[e.drained].inside[draining].Load() != 0 {
				return false
			}
			e.drained++
		}
		e.drained = 0
		if e.flipped {
			e.flipped = false
			return true
		}
		e.flipped = true
		e.bank.Store(draining)
	}
}
