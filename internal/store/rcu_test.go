package store

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestRCUWaitsForReaders(t *testing.T) {
	t.Parallel()
	e := newRCU()
	if !e.passed(e.ticket()) {
		t.Fatal("nobody is inside, and still no grace period passes")
	}
	// A reader in each bank: the second enters when the first holds up a period
	// that has made the other bank current.
	first := e.enter()
	ticket := e.ticket()
	for range 10 {
		if e.passed(ticket) {
			t.Fatal("passed with the first reader inside")
		}
	}
	second := e.enter()
	if first == second {
		t.Fatal("both readers share a bank")
	}
	later := e.ticket()
	exit(first)
	if !e.passed(ticket) {
		t.Fatal("waits for a reader that entered after the ticket")
	}
	if e.passed(later) {
		t.Fatal("passed with the second reader inside")
	}
	exit(second)
	if !e.passed(later) || e.state.Load()&1 != 0 {
		t.Fatal("does not pass, with nobody inside")
	}
}

// A straggler is a reader that chose a bank long before it enters it. The test
// does the steps of enter by hand, and lets the period go by between them.
func TestRCUStraggler(t *testing.T) {
	t.Parallel()
	e := newRCU()
	bank := e.bank.Load() & 1
	if !e.passed(e.ticket()) || e.bank.Load()&1 == bank {
		t.Fatal("a period makes the other bank current")
	}
	straggler := &e.stripes[0].inside[bank]
	straggler.Add(1) // enters the bank that is idle now
	ticket := e.ticket()
	for range 10 {
		if e.passed(ticket) {
			t.Fatal("a straggler is overlooked")
		}
	}
	exit(straggler)
	if !e.passed(ticket) {
		t.Fatal("waits for ever")
	}
}

// The use that the store makes of it, reduced: an object is unlinked, a grace
// period passes, the object is spoiled. Readers must never meet a spoiled one.
func TestRCUProtects(t *testing.T) {
	t.Parallel()
	const objects = 4
	e := newRCU()
	var values [objects]int // plain memory: the race detector looks on
	for i := range values {
		values[i] = 1
	}
	var link atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				c := e.enter()
				if values[link.Load()] != 1 {
					t.Error("a reader met an object that was in use for something else")
					stop.Store(true)
				}
				exit(c)
			}
		})
	}
	spoiled := 0
	for n := int64(1); spoiled < 2000 && !stop.Load(); n++ {
		old := link.Swap(n % objects)
		ticket := e.ticket()
		for !e.passed(ticket) {
			runtime.Gosched()
		}
		values[old] = 0
		values[old] = 1
		spoiled++
	}
	stop.Store(true)
	wg.Wait()
}

func BenchmarkRCUEnterExit(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			exit(readers.enter())
		}
	})
}
