package store

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Readers take no lock, so a segment that nothing points to any more may still
// be under the eyes of a reader that found it a moment ago. Before its bytes
// are used again, every reader that was inside at that moment must have left.
// This file knows when that is. It is sleepable RCU, with polling in the place of
// waiting, for a writer must never stop for a reader.
//
// A reader adds one to a counter when it enters, and takes it away when it
// leaves. There are two banks of counters, and many counters a bank so that
// readers on different cores seldom share a cache line. A reader takes any
// counter, of the bank that is current when it looks.
//
// The claim: if every counter of both banks has been seen at zero after a moment
// T, each at a time of its own, then no reader that entered before T is inside.
// For such a reader keeps its own counter above zero from before T until it
// leaves, so the look that found that counter at zero came after it had left. And
// a reader that enters its counter later than that look cannot find what was
// unlinked before T. Go's atomic operations have one order, and in it stand, one
// behind the other: the store that unlinked the location, T, the look, the
// reader's addition, the reader's load of the slot.
//
// One bank would do, then, if a counter that is always in use ever came by zero.
// The second bank makes sure that it does. A grace period has two halves:
//
//   - drain the bank that is not current: only stragglers are in it;
//   - make it the current one, and drain the other: nobody but stragglers enters
//     that one from now on.
//
// Draining is to see each counter of a bank at zero once, going on from where the
// last poll met a reader.
//
// Why the first half is needed, though everybody seems to be in the current bank:
// a straggler is a reader that has read which bank is current and has not added to
// it yet. Let reader R read "bank 0", and lose its core. The writer begins period
// 1, makes bank 1 current, finds bank 0 at zero, ends the period. Now R wakes up,
// adds to bank 0, loads a slot, and looks at segment X. Then X dies, and the writer
// begins period 2 for it. Everyone who entered in the meantime is in bank 1; if the
// writer now made bank 0 current and drained bank 1 alone, it would recycle X under
// R's eyes. It drains bank 0 first, and finds R there. (R did no harm to period 1:
// it loaded its slot after that was over.)
//
// One set of counters serves all stores of the process, which may have thousands.
// So a reader that is slow in one store holds up recycling in all; but recycling
// is all that it holds up, and log.reclaim lets go of memory that waits too long.
type rcu struct {
	// What readers load.
	bank    atomic.Uint32 // the current bank, 0 or 1
	shift   uint8         // what leaves as many bits of 64 as number the stripes
	spread  uint          // stripes in use lie 1<<spread apart; see wideLines
	stripes []stripe

	_ [88]byte

	// state counts the grace periods: even between two of them, odd during one.
	state atomic.Uint64

	mu      sync.Mutex // held to advance; never waited for
	flipped bool       // the period is in its second half
	drained int        // stripes of the bank being drained that have been seen at zero
}

// stripe is one counter of each bank. The two share a line, for at any time
// almost all readers are in one bank. 128 bytes since cores fetch lines in pairs.
type stripe struct {
	inside [2]atomic.Int64
	_      [112]byte
}

// readers counts the readers of all stores of the process.
var readers = newRCU()

func newRCU() *rcu {
	n := powerOfTwo(max(64, 8*runtime.NumCPU()))
	spread := wideLines()
	return &rcu{stripes: make([]stripe, n<<spread), shift: uint8(64 - bits.TrailingZeros(uint(n))), spread: spread}
}

// enter begins a read, which must be short and must not block. The result is the
// argument of exit.
//
// The address of the stack selects the stripe: a goroutine uses the same counter again,
// which is in the cache of its core, and other goroutines use others. (A random stripe
// was measured: selecting it takes longer, and half of the time it is in the cache of
// another core.)
func (e *rcu) enter() *atomic.Int64 {
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11
	c := &e.stripes[stack*0x9E3779B97F4A7C15>>(e.shift&63)<<(e.spread&63)].inside[e.bank.Load()&1]
	c.Add(1)
	return c
}

// exit ends a read.
func exit(c *atomic.Int64) { c.Add(-1) }

// ticket returns the argument of passed for a grace period that begins after now. A
// period in progress may have checked some counters already, so the ticket is for the
// next one.
func (e *rcu) ticket() uint64 {
	return (e.state.Load() + 3) &^ 1
}

// passed reports whether the grace period of a ticket is over. It first advances the
// period as far as possible without waiting.
func (e *rcu) passed(ticket uint64) bool {
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

// advance continues the current period until it is over or a reader is in the way, and
// reports whether it is over.
func (e *rcu) advance() bool {
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
