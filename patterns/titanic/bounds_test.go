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
	const services, each, size, most = 10, 4, 1000, 5000
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
		return worst > most-size && st.Running == worst/size
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
