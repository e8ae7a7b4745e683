package titanic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestMaxServicesTogether: simultaneous requests for new services do not exceed
// MaxServices.
func TestMaxServicesTogether(t *testing.T) {
	t.Parallel()
	const most, at = 3, 16
	s := testServer(t, newFakeBroker(), func(o *Options) { o.MaxServices = most })
	release := make(chan struct{})
	s.store.update = func(f func(*bolt.Tx) error) error {
		<-release
		return s.store.db.Update(f)
	}
	var asked sync.WaitGroup
	var stored, refused atomic.Int64
	for i := range at {
		asked.Go(func() {
			switch status, _ := call(t, s.request, fmt.Sprint("service ", i%8), "x"); status {
			case "200":
				stored.Add(1)
			case "500":
				refused.Add(1)
			}
		})
	}
	eventually(t, "the others are refused", func() bool { return refused.Load() >= at-2*most })
	close(release)
	asked.Wait()
	if n := s.Status().Services; n != most || stored.Load()+refused.Load() != at {
		t.Errorf("%d services, the bound is %d; %d stored, %d refused", n, most, stored.Load(), refused.Load())
	}
}

// TestHeldReplies: the replies that wait for a full disk are bounded, and none is lost:
// when the disk has room, all requests get their replies.
func TestHeldReplies(t *testing.T) {
	t.Parallel()
	const services, each, size, most = 10, 4, 4000, 20_000
	b := newFakeBroker()
	s := testServer(t, b, func(o *Options) { o.MaxHeldBytes, o.PerService = most, each })
	var full atomic.Bool
	s.store.update = func(f func(*bolt.Tx) error) error {
		if full.Load() {
			return errors.New("file resize error: a test's")
		}
		return s.store.db.Update(f)
	}
	var ids []string
	for i := range services * each {
		ids = append(ids, submit(t, s, fmt.Sprint("service ", i%services), "x"))
	}
	full.Store(true)
	var executed atomic.Int64
	together := make(chan struct{}) // makes all replies come at once
	for i := range services {
		b.serve(fmt.Sprint("service ", i), func(ctx context.Context, _ [][]byte) ([][]byte, error) {
			executed.Add(1)
			select {
			case <-together:
			case <-ctx.Done():
			}
			return frames(strings.Repeat("x", size)), nil
		})
	}
	held := func() int {
		s.dispatch.mu.Lock()
		defer s.dispatch.mu.Unlock()
		return s.dispatch.held
	}
	eventually(t, "all are executed", func() bool { return executed.Load() == services*each })
	close(together)
	worst := 0
	eventually(t, "the others wait to be executed again", func() bool {
		worst = max(worst, held())
		st := s.Status()
		return worst >= most-size && st.Running == worst/size
	})
	if worst > most {
		t.Errorf("%d bytes of replies wait, the bound is %d", worst, most)
	}
	full.Store(false)
	for _, id := range ids {
		status, content := answered(t, s, id)
		wantAnswer(t, status, content, "200", strings.Repeat("x", size))
	}
	eventually(t, "no reply waits any more", func() bool { return held() == 0 }) // a reply is stored before its attempt has ended
}

// TestRequestsAtTheBrokerAreBoundedTogether: the requests of all services that are at the
// broker have one bound in bytes. Nobody's workers being slow, all are executed.
func TestRequestsAtTheBrokerAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const services, each, size, most = 20, 12, 1000, 40_000
	b := newFakeBroker()
	var now, worst atomic.Int64
	release := make(chan struct{})
	s := testServer(t, b, func(o *Options) { o.MaxHeldBytes, o.PerService = most, each })
	var ids []string
	for i := range services * each {
		ids = append(ids, submit(t, s, fmt.Sprint("service ", i%services), strings.Repeat("x", size)))
	}
	for i := range services {
		b.serve(fmt.Sprint("service ", i), func(ctx context.Context, body [][]byte) ([][]byte, error) {
			n := now.Add(size)
			defer now.Add(-size)
			for old := worst.Load(); n > old && !worst.CompareAndSwap(old, n); old = worst.Load() {
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return body, nil
		})
	}
	waiting := func() (n int) {
		s.dispatch.mu.Lock()
		defer s.dispatch.mu.Unlock()
		return len(s.dispatch.short)
	}
	eventually(t, "all services wait for room", func() bool { return waiting() == services })
	close(release)
	for _, id := range ids {
		status, content := answered(t, s, id)
		wantAnswer(t, status, content, "200", strings.Repeat("x", size))
	}
	if n := worst.Load(); n > most/2 || n < most/4 {
		t.Errorf("%d bytes were at the broker, the bound is %d", n, most/2)
	}
	eventually(t, "nothing is held", func() bool {
		s.dispatch.mu.Lock()
		defer s.dispatch.mu.Unlock()
		return s.dispatch.held == 0
	})
}

// TestSlowServiceLeavesRoom: the large requests of a service whose workers never reply leave
// room for those of another. A request that is larger than the bound is executed, too.
func TestSlowServiceLeavesRoom(t *testing.T) {
	t.Parallel()
	const size, most = 1000, 20_000
	b := newFakeBroker()
	b.serve("echo", echo)
	s := testServer(t, b, func(o *Options) { o.MaxHeldBytes, o.PerService = most, 100 })
	large := strings.Repeat("x", 2*most)
	status, content := answered(t, s, submit(t, s, "echo", large))
	wantAnswer(t, status, content, "200", large)
	b.serve("slow", func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for range 40 {
		submit(t, s, "slow", strings.Repeat("x", size))
	}
	eventually(t, "the slow service has what it may", func() bool { return s.Status().Running >= 4 })
	for range 10 {
		status, content := answered(t, s, submit(t, s, "echo", strings.Repeat("y", size)))
		wantAnswer(t, status, content, "200", strings.Repeat("y", size))
	}
	if n := s.Status().Running; n*size > most/4 {
		t.Errorf("%d requests of one service are at the broker", n)
	}
}

// TestServiceThatEndsWaitsForNoRoom: while requests wait for room at the broker, services whose
// requests are deleted leave nothing behind.
func TestServiceThatEndsWaitsForNoRoom(t *testing.T) {
	t.Parallel()
	const most = 20_000
	b := newFakeBroker()
	b.serve("other", echo)
	b.serve("slow", func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s := testServer(t, b, func(o *Options) { o.MaxHeldBytes = most })
	submit(t, s, "slow", strings.Repeat("x", 2*most))
	eventually(t, "there is no room", func() bool { return s.Status().Running == 1 })
	for range 10 {
		id := submit(t, s, "other", "x")
		eventually(t, "the request waits for room", func() bool {
			s.dispatch.mu.Lock()
			defer s.dispatch.mu.Unlock()
			return s.dispatch.services["other"].short
		})
		if status, _ := call(t, s.close, id); status != "200" {
			t.Fatal(status)
		}
		eventually(t, "the service ends", func() bool { return s.Status().Services == 1 })
	}
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	if n := len(s.dispatch.short); n > 0 {
		t.Errorf("%d services that have ended wait for room", n)
	}
}
