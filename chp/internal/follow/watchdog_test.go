package follow

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchdog(t *testing.T) {
	t.Parallel()
	const limit = 8 * time.Second
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWatchdog()
		var barked atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx, func() { barked.Store(true) })
		}()
		quietFor := func(d time.Duration) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if barked.Load() {
				t.Fatal("silence noticed too early")
			}
		}
		quietFor(time.Hour) // nothing expected yet
		w.expect(fromSubscriber, limit)
		for range 10 {
			quietFor(limit - time.Second)
			w.heard.Or(fromSubscriber)
		}
		w.expect(fromSnapshot, limit)
		quietFor(limit - time.Second)
		w.expect(fromSnapshot, 0)
		quietFor(time.Hour)
		w.expect(fromSnapshot, limit)
		quietFor(limit - time.Second)
		w.heard.Or(fromSubscriber) // not the ear that counts
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !barked.Load() {
			t.Fatal("silence not noticed")
		}
		<-ended
	})
}

// Other sources than those that count show that a server lives: it may be silent for
// patience times as long, but not for ever.
func TestWatchdogPatience(t *testing.T) {
	t.Parallel()
	const limit = 8 * time.Second
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWatchdog()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx, func() {})
		}()
		over := func() bool {
			synctest.Wait()
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
		w.order(expectation{sources: fromSnapshot, limit: limit, others: fromSubscriber})
		for heard := range 3 {
			if heard > 0 {
				w.heard.Or(fromSnapshot)
			}
			for range patience*8 - 1 {
				time.Sleep(time.Second)
				w.heard.Or(fromSubscriber)
			}
			if over() {
				t.Fatalf("silence noticed too early, after %d sounds that count", heard)
			}
		}
		for range 3 {
			time.Sleep(time.Second)
			w.heard.Or(fromSubscriber)
		}
		if !over() {
			t.Error("silence not noticed")
		}
	})
}
