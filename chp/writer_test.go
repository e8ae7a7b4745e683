package chp

import (
	"testing"
	"time"

	"clustermap/internal/timer"
)

// TestPush: the goroutine that sets a key after a lull sends the update itself, and
// leaves those that follow to the writer's.
func TestPush(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	_, err := c.SetSync(ctx, "/k", []byte("first"))
	must(t, err)
	w := &c.writer
	state := func() (asleep, unsent bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.asleep, w.unsent()
	}
	set := func(pushed time.Duration) {
		t.Helper()
		eventually(t, "the writer sleeps", func() bool {
			asleep, _ := state()
			return asleep
		})
		w.lull.last.Store(int64(pushed))
		must(t, c.Set(ctx, "/k", []byte("next")))
	}
	set(-time.Hour)
	if asleep, unsent := state(); !asleep || unsent {
		t.Errorf("after a lull: the writer sleeps: %v, something is unsent: %v", asleep, unsent)
	}
	set(timer.Now() + time.Hour)
	must(t, c.Flush(ctx))
	if v, _ := s.Get("/k"); string(v) != "next" {
		t.Errorf("the value is %q", v)
	}
}
