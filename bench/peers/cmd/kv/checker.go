package main

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// checker checks every update that a replica receives.
type checker struct {
	w         workload
	names     []string
	conflates bool
	warmed    func() // called when each key has arrived

	finals  []int // number of each key's last update
	latest  []int // number of each key's latest update that has arrived, or -1
	next    []int // of each lane: number of the update that has to come
	arrived int   // keys that have arrived
	settled int   // keys that have their last value
	report  report
	delays  []int64

	count atomic.Int64 // grows as updates arrive, but not with each; others may read it
}

// report is the result of a replica's checks.
type report struct {
	Seen    int   // measured updates that have arrived
	Missing int   // updates that others of their lane have overtaken, or that are lost
	Stale   int   // updates that came again or too late
	Foreign int   // values that were never sent under their key
	Wrong   int   // keys that the replica does not hold with their last value
	Last    int64 // when the last one arrived, by now

	P50, P99, P999 int64 // of the time from sending to arrival, in nanoseconds
}

func newChecker(w workload, conflates bool, warmed func()) *checker {
	c := &checker{w: w, names: w.names(), conflates: conflates, warmed: warmed, finals: w.finals()}
	c.latest = slices.Repeat([]int{-1}, w.Keys)
	for lane := range w.Lanes {
		c.next = append(c.next, lane)
	}
	return c
}

// see checks an update as it arrives, and reports whether more have to come.
func (c *checker) see(key, value []byte) bool {
	n, index, sent, ok := c.w.parse(value)
	if !ok || string(key) != c.names[index] {
		c.report.Foreign++
		return true
	}
	measured := n >= c.w.Keys
	if sent != 0 || c.report.Seen%64 == 0 {
		c.count.Add(1)
	}
	latest := &c.latest[index]
	if c.conflates {
		if n == *latest {
			return true // fetched once more
		}
		if n < *latest {
			c.report.Stale++
			return true
		}
	} else {
		next := &c.next[c.w.lane(n)]
		if n < *next {
			c.report.Stale++
			return true
		}
		c.report.Missing += (n - *next) / c.w.Lanes
		*next = n + c.w.Lanes
	}
	if *latest < 0 {
		if c.arrived++; c.arrived == c.w.Keys {
			c.warmed()
		}
	}
	*latest = n
	if measured {
		c.report.Seen++
		if sent != 0 {
			c.delays = append(c.delays, now()-sent)
		}
	}
	if n == c.finals[index] {
		if c.settled++; c.settled == c.w.Keys {
			c.report.Last = now()
			return false
		}
	}
	return true
}

// conclude checks the content of the replica, and completes the report.
func (c *checker) conclude(get func(key string) ([]byte, bool)) report {
	for i, name := range c.names {
		value, ok := get(name)
		n, key, _, whole := c.w.parse(value)
		if !ok || !whole || key != i || n != c.finals[i] {
			c.report.Wrong++
		}
	}
	if len(c.delays) > 0 {
		slices.Sort(c.delays)
		of := func(share float64) int64 { return c.delays[int(share*float64(len(c.delays)-1))] }
		c.report.P50, c.report.P99, c.report.P999 = of(0.5), of(0.99), of(0.999)
	}
	return c.report
}

// errUnsound reports that a replica lost, duplicated or reordered updates, or received
// wrong content.
var errUnsound = errors.New("unsound")

// fault returns an error if not every update arrived once and in order.
func (r *report) fault(w workload, conflates bool) error {
	if r.Last != 0 && r.Missing == 0 && r.Stale == 0 && r.Foreign == 0 && r.Wrong == 0 && (conflates || r.Seen == w.Updates) {
		return nil
	}
	return fmt.Errorf("%w: %d of %d updates arrived; %d missing or overtaken, %d doubled or late, %d foreign; %d of %d keys wrong in the end",
		errUnsound, r.Seen, w.Updates, r.Missing, r.Stale, r.Foreign, r.Wrong, w.Keys)
}
