package workload

// tracker follows the counters of one publisher, which count from 1 without a
// gap, and finds those that are lost, repeated or out of order.
type tracker struct {
	doubled    uint64
	outOfOrder uint64

	last    uint64 // highest counter seen
	missing []gap  // below last, in ascending order; usually empty
}

// gap is the counters from first to last, both included.
type gap struct{ first, last uint64 }

// see takes the next counter as it arrives.
func (t *tracker) see(counter uint64) {
	switch {
	case counter == t.last+1:
		t.last = counter
	case counter > t.last:
		t.missing = append(t.missing, gap{t.last + 1, counter - 1})
		t.last = counter
	default:
		t.late(counter)
	}
}

// late takes a counter that should have come before: for the first time, or
// once more.
func (t *tracker) late(counter uint64) {
	for i, g := range t.missing {
		if counter < g.first || counter > g.last {
			continue
		}
		t.outOfOrder++
		var rest []gap
		if g.first < counter {
			rest = append(rest, gap{g.first, counter - 1})
		}
		if counter < g.last {
			rest = append(rest, gap{counter + 1, g.last})
		}
		t.missing = append(t.missing[:i:i], append(rest, t.missing[i+1:]...)...)
		return
	}
	t.doubled++
}

// lost returns how many of the first total counters never came.
func (t *tracker) lost(total uint64) uint64 {
	lost := uint64(0)
	if t.last < total {
		lost = total - t.last
	}
	for _, g := range t.missing {
		lost += g.last - g.first + 1
	}
	return lost
}
