package chp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// Each update of a batch is judged by itself, on those before it, and has an outcome of its own.
func TestApplyEach(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	var b BatchIf
	must(t, c.ApplyEach(ctx, &b)) // empty
	b.Set("a", []byte("1"), IfAbsent(), WithProperty("by", "alice"))
	b.Set("a", []byte("2"), IfAbsent(), WithConflictValue())
	b.Set("a", []byte("3"), IfValue([]byte("1")), IfAbsent().On("b"))
	b.Set("b", []byte("4"), IfPresent())
	b.Delete("a", IfValue([]byte("3")))
	b.Set("b", []byte("5"), IfAbsent().On("a"))
	if _, err := b.Outcome(0); err != errNotApplied {
		t.Errorf("an outcome before there is one: %v", err)
	}
	err := c.ApplyEach(ctx, &b)
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Key != "a" || string(conflict.Value) != "1" {
		t.Errorf("%v, want the first conflict", err)
	}
	first, err := b.Outcome(0)
	must(t, err)
	if conflict.Sequence != first {
		t.Errorf("the conflict is with %d, want %d", conflict.Sequence, first)
	}
	for i, want := range []int64{0, -1, 1, -1, 2, 3} {
		seq, err := b.Outcome(i)
		switch {
		case want < 0 && !errors.As(err, new(*ConflictError)), want >= 0 && (err != nil || seq != first+want):
			t.Errorf("update %d: sequence %d, %v", i, seq, err)
		}
	}
	if _, err := b.Outcome(3); !errors.As(err, &conflict) || conflict.Key != "b" || conflict.Sequence != 0 || conflict.HasValue {
		t.Errorf("a key that does not exist: %v", err)
	}
	if v, _ := c.Get("b"); string(v) != "5" {
		t.Errorf("the replica has %q", v)
	}
	if _, ok := c.Get("a"); ok {
		t.Error("the replica still has what was deleted")
	}
	for name, fill := range map[string]func(){
		"no value":  func() { b.Set("a", nil) },
		"a bad key": func() { b.Delete("") },
		"a bad key of a condition": func() {
			b.Set("a", []byte("x"), IfAbsent().On("a\x00"))
		},
		"a bad property": func() { b.Set("a", []byte("x"), WithProperty("=", "x")) },
	} {
		b.Reset()
		b.Set("c", []byte("not sent"))
		fill()
		if err := c.ApplyEach(ctx, &b); err == nil {
			t.Errorf("%s is accepted", name)
		}
		if _, err := b.Outcome(0); err != errNotApplied {
			t.Errorf("%s: an outcome of what was not sent: %v", name, err)
		}
	}
	if _, ok := s.Get("c"); ok {
		t.Error("a batch with an error is sent")
	}
	none := followServer(t, s.Endpoints().Snapshot, "/elsewhere/")
	b.Reset()
	b.Set("far", []byte("1"), IfAbsent())
	must(t, none.ApplyEach(ctx, &b)) // does not wait for a replica without the key
}

// The context of a call ends: what was not sent is not made, and the memory is the caller's again.
func TestApplyEachIsGivenUp(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	ctx := testContext(t)
	must(t, c.WaitActive(ctx))
	var b BatchIf
	fill := func() {
		b.Reset()
		for i := range 10_000 {
			b.Set(fmt.Sprint(i), []byte("value"), IfAbsent())
		}
	}
	fill()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.ApplyEach(ended, &b); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context has ended", err)
	}
	fill() // while what was sent is judged
	err := c.ApplyEach(ctx, &b)
	if err != nil && !errors.As(err, new(*ConflictError)) {
		t.Error(err)
	}
	for i := range b.Len() {
		if v, _ := c.Get(fmt.Sprint(i)); string(v) != "value" {
			t.Fatalf("key %d has %q", i, v)
		}
	}
}

// After any number of broken connections each update of a batch was made once, and its outcome is
// known.
func TestApplyEachExactlyOnce(t *testing.T) {
	t.Parallel()
	cuts := 100
	if testing.Short() || raceDetector {
		cuts = 30
	}
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: 20 * time.Millisecond})
	c, proxies := throughProxies(t, s, ClientOptions{})
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		faults(t, c, proxies, cuts, rand.New(rand.NewPCG(1, 2)))
		over.Store(true)
	}()
	var b BatchIf
	value, made := 0, 0
	for !over.Load() {
		b.Reset()
		for range 500 { // a chain, in which a lost or a second update breaks all that follow
			condition := IfAbsent()
			if value > 0 {
				condition = IfValue(strconv.AppendInt(nil, int64(value), 10))
			}
			value++
			b.Set("chain", strconv.AppendInt(nil, int64(value), 10), condition)
		}
		if err := c.ApplyEach(ctx, &b); err != nil {
			t.Errorf("after %d updates: %v", made, err)
			break
		}
		made += b.Len()
	}
	<-done
	if v, _ := s.Get("chain"); string(v) != strconv.Itoa(value) {
		t.Errorf("the chain ends with %s, want %d", v, value)
	}
}

// A batch that is used again needs no memory for an update.
func TestApplyEachAllocatesNothingPerUpdate(t *testing.T) {
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	ctx := testContext(t)
	must(t, c.WaitActive(ctx))
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("/key/", i)
	}
	value := []byte("some value")
	var b BatchIf
	apply := func() {
		b.Reset()
		for i, key := range keys {
			b.Set(key, value, IfSequence(int64(i)).On("/none"), WithConflictValue())
		}
		if err := c.ApplyEach(ctx, &b); !errors.As(err, new(*ConflictError)) && err != nil {
			t.Error(err)
		}
		b.Reset()
		for _, key := range keys {
			b.Set(key, value, IfAbsent().On("/none"))
		}
		if err := c.ApplyEach(ctx, &b); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		apply()
	}
	if n := testenv.Allocs(100, 200, apply); n > 200 {
		t.Errorf("%v allocations for %d updates", n, 2*len(keys))
	}
	fill := func() {
		b.Reset()
		for _, key := range keys {
			b.Set(key, value, IfSequence(7), IfPresent().On("/other"), WithTTL(time.Second))
		}
	}
	fill()
	if n := testenv.Allocs(0, 100, fill); n != 0 {
		t.Errorf("%v allocations to fill a batch", n)
	}
}

// Each update of a batch is attached to its own lease, and conflicts only with its own conditions.
func TestApplyEachAttachesToLeases(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{ExpiryGrace: -1})
	c := startClient(t, s, ClientOptions{})
	alive, err := c.Grant(ctx, time.Hour)
	must(t, err)
	ended, err := c.Grant(ctx, time.Hour)
	must(t, err)
	must(t, ended.Revoke(ctx))
	var b BatchIf
	b.Set("/a", []byte("1"), WithLease(alive), IfAbsent())
	b.Set("/b", []byte("2"), WithLease(ended), IfAbsent())
	b.Set("/a", []byte("3"), WithLease(alive), IfAbsent())
	b.Set("/c", []byte("4"), IfAbsent())
	if err := c.ApplyEach(ctx, &b); !errors.Is(err, ErrLeaseEnded) {
		t.Errorf("ApplyEach: %v", err)
	}
	var conflict *ConflictError
	if _, err := b.Outcome(2); !errors.As(err, &conflict) || conflict.Key != "/a" {
		t.Errorf("the condition of /a: %v", err)
	}
	for i, want := range []bool{true, false, false, true} {
		if _, err := b.Outcome(i); (err == nil) != want {
			t.Errorf("update %d: %v", i, err)
		}
	}
	must(t, alive.Revoke(ctx))
	eventually(t, "the keys of the lease are gone", func() bool { return c.Len() == 1 })
}
