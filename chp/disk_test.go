package chp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
)

// openLog opens the log in a directory.
func openLog(t testing.TB, dir string) commit.Log {
	t.Helper()
	log, err := durable.Open(dir, durable.Options{})
	must(t, err)
	return log
}

// TestRestartWithLog restarts a server again and again, with and without a
// checkpoint in between, and looks whether the map goes on where it was.
func TestRestartWithLog(t *testing.T) {
	t.Parallel()
	for _, policy := range []commit.Policy{commit.Always(), commit.Interval(time.Millisecond), commit.Never()} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			dir := t.TempDir()
			var last int64
			want := map[string]string{}
			const runs, updates = 4, 500
			for run := range runs {
				var told []ReplayProgress
				s, stop := serveUntil(t, ServerOptions{
					Log: openLog(t, dir), Sync: policy, OnReplay: func(p ReplayProgress) { told = append(told, p) },
				})
				if s.Len() != len(want) || s.Sequence() < last {
					t.Fatalf("run %d begins with %d keys at %d, want %d and at least %d", run, s.Len(), s.Sequence(), len(want), last)
				}
				for key, value := range want {
					if got, _ := s.Get(key); string(got) != value {
						t.Fatalf("run %d: %s is %q, want %q", run, key, got, value)
					}
				}
				if n := len(told); n == 0 || !told[n-1].Done || run > 0 && told[n-1].Updates == 0 {
					t.Errorf("run %d: progress %+v", run, told)
				}
				c := startClient(t, s, ClientOptions{})
				for i := range updates {
					key, value := fmt.Sprintf("/%d", i*(run+1)), strings.Repeat("x", 10+run)
					must(t, c.Set(ctx, key, []byte(value)))
					want[key] = value
					if i%7 == 0 {
						must(t, c.Delete(ctx, key))
						delete(want, key)
					}
					if run == 1 && i == updates/2 {
						must(t, c.Flush(ctx))
						must(t, s.sequencer.Checkpoint(ctx))
					}
				}
				must(t, c.Flush(ctx))
				last = c.Sequence()
				must(t, c.Close())
				stop()
			}
		})
	}
}

// serveUntil serves until stop is called.
func serveUntil(t testing.TB, o ServerOptions) (s *Server, stop func()) {
	t.Helper()
	o.Logger = quiet()
	s, err := NewServer(o)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	<-s.Ready()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			must(t, s.Close())
			must(t, <-served)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// TestRestartKeepsDeadlines: a time to live goes on while the server is down, and
// a key whose time ended meanwhile expires with a deletion that clients get.
func TestRestartKeepsDeadlines(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, checkpoint := range []bool{false, true} {
		dir := t.TempDir()
		s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
		c := startClient(t, s, ClientOptions{})
		const ttl = 300 * time.Millisecond
		must(t, c.Set(ctx, "/short", []byte("1"), WithTTL(ttl)))
		must(t, c.Set(ctx, "/long", []byte("1"), WithTTL(time.Hour)))
		must(t, c.Set(ctx, "/made-permanent", []byte("1"), WithTTL(ttl)))
		must(t, c.Set(ctx, "/made-permanent", []byte("2")))
		must(t, c.Set(ctx, "/for-ever", []byte("1")))
		must(t, c.Flush(ctx))
		set := time.Now()
		if checkpoint {
			must(t, s.sequencer.Checkpoint(ctx))
		}
		must(t, c.Close())
		stop()
		time.Sleep(ttl)

		s, stop = serveUntil(t, ServerOptions{Log: openLog(t, dir), ExpiryGrace: -1})
		c = startClient(t, s, ClientOptions{})
		must(t, c.WaitActive(ctx))
		eventually(t, "the key whose time is over is gone", func() bool { return s.Len() == 3 && c.Len() == 3 })
		left, ok := timeLeft(c, "/long")
		if past := time.Since(set); !ok || left > time.Hour-ttl || left < time.Hour-past-time.Second {
			t.Errorf("%v are left after %v of an hour", left, past)
		}
		stop()

		// The deletion is in the log.
		s, stop = serveUntil(t, ServerOptions{Log: openLog(t, dir)})
		if s.Len() != 3 {
			t.Errorf("%d keys after another restart, want 3", s.Len())
		}
		stop()
	}
}

// TestPreloadAndLog: the keys of Preload are those that an empty log begins with,
// and no others.
func TestPreloadAndLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for run := range 3 {
		s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir), Preload: func(yield func(Entry, error) bool) {
			for i := range 1000 {
				if !yield(Entry{Key: fmt.Appendf(nil, "/%d/%d", run, i), Value: []byte("v")}, nil) {
					return
				}
			}
		}})
		if _, ok := s.Get("/0/999"); !ok || s.Len() != 1000 {
			t.Errorf("run %d: %d keys", run, s.Len())
		}
		stop()
	}
}

// failingLog is a log whose flushes fail from some time on.
type failingLog struct {
	commit.Log
	fail chan struct{}
}

var errDisk = errors.New("the disk is on fire")

func (l *failingLog) Sync() error {
	select {
	case <-l.fail:
		return errDisk
	default:
		return l.Log.Sync()
	}
}

// TestFailedLogEndsServer: with the policy always, an update whose flush fails is never
// published, and Serve returns the error.
func TestFailedLogEndsServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	log := &failingLog{openLog(t, t.TempDir()), make(chan struct{})}
	s, err := NewServer(ServerOptions{Log: log, Sync: commit.Always(), Logger: quiet()})
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	<-s.Ready()
	c := startClient(t, s, ClientOptions{})
	_, err = c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	close(log.fail)
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	result := setSync(calling, c, "/b", "2")
	if err := <-served; !errors.Is(err, errDisk) {
		t.Errorf("Serve returned %v", err)
	}
	cancel() // it would wait for the server to come back
	if got := <-result; !errors.Is(got.err, context.Canceled) {
		t.Errorf("SetSync returned %v", got)
	}
	if _, ok := c.Get("/b"); ok {
		t.Error("an update was published that is not on the disk")
	}
}

// TestNewServerClosesLog: a server that is not made leaves the directory to others.
func TestNewServerClosesLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, o := range []ServerOptions{
		{Port: -1},
		{MaxValueSize: maxLoggedValue + 1},
		{Preload: func(yield func(Entry, error) bool) { yield(Entry{}, errDisk) }},
	} {
		o.Log = openLog(t, dir)
		if _, err := NewServer(o); err == nil {
			t.Fatal("a server was made")
		}
	}
	_, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	stop()
}
