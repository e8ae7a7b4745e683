package store

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Readers take no lock, so a segment to which nothing points any more may still be in
// use by a reader that found it a moment ago. Before its bytes are reused, every reader
// that was inside at that moment must have exited. rcu decides when that is the case.
// It is sleepable RCU, with polling instead of waiting, because a writer must never
// wait for a reader.
//
// A reader increments a counter when it enters and decrements it when it exits. There
// are two banks of counters, with many counters each so that readers on different cores
// rarely share a cache line. A reader uses any counter of the bank that is current when
// it looks.
//
// The claim: if every counter of both banks has been seen at zero after a moment T,
// each at its own time, then no reader that entered before T is inside. Such a reader
// keeps its counter above zero from before T until it exits, so that counter was seen
// at zero after it had exited. And a reader that increments its counter after that
// cannot find anything that was unlinked before T. Go's atomic operations have a single
// order, and in it follow each other: the store that unlinked the location, T, the look
// at the counter, the reader's increment, the reader's load of the slot.
//
// One bank would be enough if a counter in constant use were sure to be zero at some
// time. The second bank guarantees that. A grace period has two halves:
//
//   - drain the bank that is not current: only stragglers are in it;
//   - make it current, and drain the other: only stragglers enter that from now on.
//
// To drain a bank is to see each of its counters at zero once, continuing where the
// last poll found a reader.
//
// Why the first half is necessary, although almost all readers are in the current bank:
// a straggler is a reader that has read which bank is current and has not incremented a
// counter yet. Let reader R read "bank 0" and be preempted. The writer begins period 1,
// makes bank 1 current, finds bank 0 at zero, and ends the period. Now R continues,
// increments a counter of bank 0, loads a slot, and reads segment X. Then X dies, and
// the writer begins period 2 for it. Readers that entered in the meantime are in bank
// 1. If the writer made bank 0 current and drained bank 1 only, it would recycle X
// while R reads it. It drains bank 0 first, and finds R there. (R did not disturb
// period 1: it loaded its slot after that had ended.)
//
// One set of counters serves all stores of the process, of which there may be
// thousands. So a reader that is slow in one store delays recycling in all, but nothing
// else; and log.reclaim drops segments that wait too long.
type rcu struct {
	// Loaded by readers.
	bank    atomic.Uint32 // the current bank, 0 or 1
	shift   uint8         // 64 minus the bits of a stripe's number
	spread  uint          // the stripes in use are 1<<spread apart; see wideLines
	stripes []stripe

	_ [88]byte

	// state is incremented at the start and at the end of each grace period, so it is
	// odd during one.
	state atomic.Uint64

	mu      sync.Mutex // held to advance; never waited for
	flipped bool       // the period is in its second half
	drained int        // stripes of the bank being drained that were seen at zero
}

// stripe is one counter of each bank. They share a cache line, because at any time
// almost all readers are in one bank. It has 128 bytes because cores fetch lines in
// pairs.
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
		return false // another store is advancing it
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
		// Both halves drain the bank that is not current.
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
