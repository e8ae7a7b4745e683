package main

import (
	"context"
	"sync/atomic"
	"time"

	"clustermap/internal/pace"
)

// source gives a publisher the updates of the workload, one after the other.
type source struct {
	w     workload
	names []string
	to    publisher
	n     int
	value [valueSize]byte

	count    atomic.Int64 // grows as updates are sent; others may read it
	finished atomic.Bool
}

// send sends the next updates. They carry sentAt as their time.
func (s *source) send(updates int, sentAt int64) error {
	for range updates {
		key := s.w.key(s.n)
		fill(s.value[:], s.n, key, sentAt)
		if err := s.to.set(update{lane: s.w.lane(s.n), index: key, key: s.names[key], value: s.value[:]}); err != nil {
			return err
		}
		if s.n++; s.n%64 == 0 {
			s.count.Add(1)
		}
	}
	return s.to.push()
}

// pace sends the updates that are due, and sleeps. They carry the time at which it woke,
// so that a wait for the ones before counts.
func (s *source) pace(ctx context.Context, updates int, rate float64) error {
	start := time.Now()
	for done := 0; done < updates; {
		due := min(updates, 1+int(time.Since(start).Seconds()*rate))
		if err := s.send(due-done, now()); err != nil {
			return err
		}
		done = due
		s.count.Add(1)
		next := start.Add(time.Duration(float64(done) / rate * float64(time.Second)))
		if err := pace.Sleep(ctx, next); err != nil {
			return err
		}
	}
	return nil
}
