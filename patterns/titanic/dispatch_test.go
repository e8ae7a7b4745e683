package titanic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSlowService: a service whose workers never reply, and services without workers, do
// not delay others.
func TestSlowService(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	b.serve("slow", func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	b.serve("echo", echo)
	s := testServer(t, b, func(o *Options) { o.PerService = 2 })
	for i := range 20 {
		submit(t, s, "slow", number(i))
		submit(t, s, fmt.Sprint("nobody's ", i), "x")
	}
	for i := range 20 {
		status, content := answered(t, s, submit(t, s, "echo", number(i)))
		wantAnswer(t, status, content, "200", number(i))
	}
	eventually(t, "all others wait", func() bool {
		st := s.Status()
		return st.Running == 2 && st.Waiting == 40 && st.Services == 21
	})
}

// TestPerService: PerService requests of a service run at once, and no more.
func TestPerService(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	var now, most atomic.Int64
	release := make(chan struct{})
	b.serve("echo", func(_ context.Context, body [][]byte) ([][]byte, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-release
		return body, nil
	})
	s := testServer(t, b, func(o *Options) { o.PerService = 3 })
	var ids []string
	for i := range 10 {
		ids = append(ids, submit(t, s, "echo", number(i)))
	}
	eventually(t, "three run", func() bool { return now.Load() == 3 })
	close(release)
	for i, id := range ids {
		status, content := answered(t, s, id)
		wantAnswer(t, status, content, "200", number(i))
	}
	if most.Load() != 3 {
		t.Errorf("%d at once", most.Load())
	}
}

// TestRetry: a failed request is tried again after longer and longer waits, and others are
// executed meanwhile.
func TestRetry(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	var failures atomic.Int64
	b.serve("echo", func(_ context.Context, body [][]byte) ([][]byte, error) {
		if string(body[0]) == "bad" && failures.Add(1) <= 4 {
			return nil, errTest
		}
		return body, nil
	})
	s := testServer(t, b, func(o *Options) { o.PerService, o.RetryMin, o.RetryMax = 1, 20*time.Millisecond, 80*time.Millisecond })
	start := time.Now()
	bad := submit(t, s, "echo", "bad")
	status, content := answered(t, s, submit(t, s, "echo", "good"))
	wantAnswer(t, status, content, "200", "good")
	status, content = answered(t, s, bad)
	wantAnswer(t, status, content, "200", "bad")
	if took, least := time.Since(start), (10+20+40+40)*time.Millisecond; took < least {
		t.Errorf("four retries took %v, less than %v", took, least)
	}
	if st := s.Status(); st.Retries != 4 || st.Attempts != 6 || st.Executed != 2 || st.Refused != 0 { // counted before the reply is stored
		t.Errorf("%+v", st)
	}
}

// TestAttemptTimeout: a request whose worker never replies is tried again.
func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	var calls atomic.Int64
	b.serve("echo", func(ctx context.Context, body [][]byte) ([][]byte, error) {
		if calls.Add(1) == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return body, nil
	})
	s := testServer(t, b, func(o *Options) { o.AttemptTimeout = 20 * time.Millisecond })
	status, content := answered(t, s, submit(t, s, "echo", "x"))
	wantAnswer(t, status, content, "200", "x")
}

// TestUnavailable: when a service has lost its workers, its requests wait in order, and
// are executed when the broker reports workers again.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	s := testServer(t, b, func(o *Options) { o.PerService = 1 })
	var ids []string
	for i := range 3 {
		ids = append(ids, submit(t, s, "late", number(i)))
	}
	eventually(t, "the broker is asked again", func() bool { return b.probed("late") >= 3 })
	if st := s.Status(); st.Attempts != 0 {
		t.Errorf("%d attempts without a worker", st.Attempts)
	}
	var mu sync.Mutex
	var order []string
	fails := 2
	b.serve("late", func(_ context.Context, body [][]byte) ([][]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if fails--; fails >= 0 {
			return nil, errUnavailable
		}
		order = append(order, string(body[0]))
		return body, nil
	})
	for _, id := range ids {
		answered(t, s, id)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(order, ","); got != "request 0,request 1,request 2" {
		t.Errorf("executed in the order %s", got)
	}
}

// TestCloseWhileRunning: a request that is closed while a worker has it leaves nothing, and
// the next one starts at once.
func TestCloseWhileRunning(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	started, release := make(chan struct{}, 1), make(chan struct{})
	b.serve("echo", func(ctx context.Context, body [][]byte) ([][]byte, error) {
		if string(body[0]) == "closed" {
			started <- struct{}{}
			<-ctx.Done()
			<-release // then reply nevertheless
		}
		return body, nil
	})
	dir := t.TempDir()
	s := testServer(t, b, func(o *Options) { o.Dir, o.PerService = dir, 2 })
	id := submit(t, s, "echo", "closed")
	<-started
	status, content := call(t, s.close, id)
	wantAnswer(t, status, content, "200")
	close(release)
	status, content = answered(t, s, submit(t, s, "echo", "next"))
	wantAnswer(t, status, content, "200", "next")
	eventually(t, "nothing runs", func() bool { return s.Status().Running == 0 })
	for range 2 {
		status, content = call(t, s.reply, id)
		wantAnswer(t, status, content, "400")
		agree(t, s.store)
		if st := s.Status(); st.Waiting != 0 || st.Replies != 1 {
			t.Errorf("%+v", st)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = testServer(t, b, func(o *Options) { o.Dir = dir })
	}
}

// TestCloseInEveryState: requests are closed at random while they are ready, delayed,
// running or have a reply. Nothing is left, and nothing is counted twice.
func TestCloseInEveryState(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	var n atomic.Int64
	b.serve("echo", func(ctx context.Context, body [][]byte) ([][]byte, error) {
		switch n.Add(1) % 4 {
		case 0:
			return nil, errTest
		case 1:
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		case 2:
			return nil, errUnavailable
		}
		return body, nil
	})
	s := testServer(t, b, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 40 {
				id := submit(t, s, "echo", "x")
				if n.Add(1)%3 == 0 {
					time.Sleep(time.Duration(n.Load()%4) * time.Millisecond)
				}
				status, content := call(t, s.close, id)
				wantAnswer(t, status, content, "200")
			}
		})
	}
	all.Wait()
	eventually(t, "the dispatcher has nothing", func() bool { st := s.Status(); return st.Services == 0 && st.Running == 0 })
	agree(t, s.store)
	if st := s.Status(); st.Waiting != 0 || st.Replies != 0 || st.Bytes != 0 || st.Stored != 320 {
		t.Errorf("%+v", st)
	}
}

// TestRestart: a new server executes pending requests, and keeps the replies.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newFakeBroker()
	b.serve("echo", echo)
	s := testServer(t, b, func(o *Options) { o.Dir = dir })
	done := submit(t, s, "echo", "done")
	answered(t, s, done)
	var ids []string
	for i := range 50 {
		ids = append(ids, submit(t, s, "late", number(i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	status, content := call(t, s.request, "echo", "x")
	wantAnswer(t, status, content, "500") // from a closed server
	b.serve("late", echo)
	s = testServer(t, b, func(o *Options) { o.Dir = dir })
	for i, id := range ids {
		status, content := answered(t, s, id)
		wantAnswer(t, status, content, "200", number(i))
	}
	status, content = call(t, s.reply, done)
	wantAnswer(t, status, content, "200", "done")
}

// TestCloseServer: Close ends attempts whose workers never reply.
func TestCloseServer(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	started := make(chan struct{}, 1)
	b.serve("slow", func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s := testServer(t, b, nil)
	submit(t, s, "slow", "x")
	submit(t, s, "nobody's", "x")
	<-started
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExpiry: requests that are not executed and replies that are not closed expire.
func TestExpiry(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	b.serve("echo", echo)
	for name, change := range map[string]func(*Options){
		"requests": func(o *Options) { o.RequestTTL, o.ReplyTTL = 30*time.Millisecond, -1 },
		"replies":  func(o *Options) { o.RequestTTL, o.ReplyTTL = time.Hour, 30*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testServer(t, b, change)
			request := submit(t, s, "nobody's", "x")
			var reply string
			eventually(t, "one is executed in time", func() bool {
				reply = submit(t, s, "echo", "x")
				status, _ := answered(t, s, reply)
				return status == "200"
			})
			old, kept, want := request, reply, "200"
			if name == "replies" {
				old, kept, want = reply, request, "300"
			}
			eventually(t, "it is unknown", func() bool {
				status, _ := call(t, s.reply, old)
				return status == "400"
			})
			eventually(t, "the other one is there", func() bool {
				status, _ := call(t, s.reply, kept)
				return status == want
			})
			eventually(t, "it is counted", func() bool { return s.Status().Expired > 0 })
		})
	}
}

// TestBounds: when a bound is reached, requests are answered 500 until there is room.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"number":   func(o *Options) { o.MaxRequests = 2 },
		"bytes":    func(o *Options) { o.MaxBytes = 2*1000 + 2*entryBytes + 200 },
		"services": func(o *Options) { o.MaxServices = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testServer(t, newFakeBroker(), change)
			body := strings.Repeat("x", 1000)
			first := submit(t, s, "a", body)
			submit(t, s, "b", body)
			status, content := call(t, s.request, "c", body)
			wantAnswer(t, status, content, "500")
			if st := s.Status(); st.Full != 1 || st.Stored != 2 {
				t.Errorf("%+v", st)
			}
			status, content = call(t, s.close, first)
			wantAnswer(t, status, content, "200")
			eventually(t, "there is room", func() bool {
				status, _ := call(t, s.request, "c", body)
				return status == "200"
			})
		})
	}
}

// TestCrowded: while unclosed replies fill the store, no request is executed, so the store
// does not grow.
func TestCrowded(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	b.serve("grow", func(context.Context, [][]byte) ([][]byte, error) { return frames(strings.Repeat("x", 3000)), nil })
	s := testServer(t, b, func(o *Options) { o.MaxBytes, o.PerService = 10_000, 1 })
	var ids []string
	b.mu.Lock() // no request is executed before all are stored
	for range 10 {
		ids = append(ids, submit(t, s, "grow", "x"))
	}
	b.mu.Unlock()
	eventually(t, "the store is full of replies", func() bool { return s.store.repliesBytes() >= 10_000 })
	// So long it takes until a request is executed, with another store.
	other := testServer(t, b, nil)
	answered(t, other, submit(t, other, "grow", "x"))
	if st := s.Status(); st.Replies != 4 || st.Waiting != 6 {
		t.Errorf("%+v", st)
	}
	for _, id := range ids {
		answered(t, s, id)
		call(t, s.close, id)
	}
}

// TestTooLarge: too large a reply is not stored, and the client gets an error.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	b.serve("bytes", func(context.Context, [][]byte) ([][]byte, error) { return frames(strings.Repeat("x", 1001)), nil })
	b.serve("frames", func(context.Context, [][]byte) ([][]byte, error) { return make([][]byte, MaxFrames+1), nil })
	s := testServer(t, b, func(o *Options) { o.MaxReplyBytes = 1000 })
	for _, service := range []string{"bytes", "frames"} {
		status, content := answered(t, s, submit(t, s, service, "x"))
		wantAnswer(t, status, content, "500", "702", "the reply is too large to be stored")
	}
}

// TestDamagedRequest: a damaged request is not executed, and the client gets an error.
func TestDamagedRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newFakeBroker()
	s := testServer(t, b, func(o *Options) { o.Dir = dir })
	id := submit(t, s, "echo", "a body that is easily found")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(databaseOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.ReplaceAll(string(content), "easily", "hardly")
	if err := os.WriteFile(databaseOf(dir), []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	b.serve("echo", echo)
	s = testServer(t, b, func(o *Options) { o.Dir = dir })
	status, answer := answered(t, s, id)
	wantAnswer(t, status, answer, "500", "701", "the stored request is damaged")
}

// TestOptions: all invalid options are reported at once.
func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := Options{PerService: -1, RetryMin: 2, RetryMax: 1, MaxRequestBytes: MaxMessageBytes + 1}.withDefaults()
	for _, field := range []string{"Broker", "Dir", "PerService", "RetryMax", "MaxRequestBytes"} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+": ") {
			t.Errorf("%s is not in: %v", field, err)
		}
	}
	if _, ok := errors.AsType[*OptionError](err); !ok {
		t.Error("no OptionError")
	}
	for _, o := range []Options{{}, {RetryMax: time.Millisecond}, {RetryMin: time.Hour}} {
		o.Broker, o.Dir = "x", "y"
		if o, err = o.withDefaults(); err != nil || o.RetryMin <= 0 || o.RetryMax < o.RetryMin {
			t.Errorf("%+v %v", o, err)
		}
	}
	if _, err := (ClientOptions{PollMin: -1}).withDefaults(); err == nil {
		t.Error("a client's options")
	}
}
