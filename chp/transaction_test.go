package chp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// A set with a condition is made or not, and says why.
func TestSetIf(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := startClient(t, server, ClientOptions{})
	conflict := func(err error, want int64) {
		t.Helper()
		var e *ConflictError
		if !errors.As(err, &e) || e.Key != "k" || e.Sequence != want {
			t.Errorf("%v, want a conflict with sequence %d", err, want)
		}
	}
	first, err := c.SetIf(ctx, "k", []byte("1"), IfAbsent())
	must(t, err)
	_, err = c.SetIf(ctx, "k", []byte("2"), IfAbsent())
	conflict(err, first)
	if v, _ := c.Get("k"); string(v) != "1" {
		t.Errorf("%q", v)
	}
	second, err := c.SetIf(ctx, "k", []byte("2"), IfSequence(first))
	must(t, err)
	_, err = c.SetIf(ctx, "k", []byte("3"), IfSequence(first))
	conflict(err, second)
	_, err = c.SetIf(ctx, "k", []byte("3"), IfValue([]byte("1")), WithConflictValue())
	conflict(err, second)
	var e *ConflictError
	if errors.As(err, &e); !e.HasValue || string(e.Value) != "2" {
		t.Errorf("the conflict has the value %q (%v)", e.Value, e.HasValue)
	}
	_, err = c.SetIf(ctx, "k", []byte("3"), IfValue([]byte("2")), IfPresent(), IfAbsent().On("other"))
	must(t, err)
	_, err = c.DeleteIf(ctx, "k", IfSequence(second))
	if !errors.As(err, &e) {
		t.Error(err)
	}
	_, err = c.DeleteIf(ctx, "k", IfValue([]byte("3")))
	must(t, err)
	_, err = c.DeleteIf(ctx, "k", IfPresent())
	conflict(err, 0)
	_, err = server.SetIf(ctx, "k", []byte("4"), IfSequence(0))
	must(t, err)
	_, err = server.SetIf(ctx, "k", []byte("5"), IfAbsent())
	if !errors.As(err, &e) {
		t.Error(err)
	}
	sum, err := c.Add(ctx, "k", 38)
	must(t, err)
	if sum != 42 {
		t.Error(sum)
	}
}

// A transaction is made as a whole, and nobody sees a part of it.
func TestTransactionIsSeenAsOne(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := startClient(t, server, ClientOptions{})
	part := startClient(t, server, ClientOptions{Subtrees: []string{"/a/"}})
	w, err := part.Watch()
	must(t, err)
	defer w.Close()
	const rounds, keys = 200, 50
	var writing sync.WaitGroup
	writing.Go(func() {
		for round := range rounds {
			var b Batch
			for i := range keys {
				b.Set(fmt.Sprintf("/%c/%d", 'a'+i%2, i), []byte(fmt.Sprint(round)))
			}
			first, err := c.ApplyIf(ctx, &b)
			if err != nil {
				t.Error(err)
				return
			}
			if v, _ := c.Get(fmt.Sprintf("/%c/%d", 'a'+(keys-1)%2, keys-1)); string(v) != fmt.Sprint(round) {
				t.Errorf("round %d of sequence %d: the client has %q", round, first, v)
			}
		}
	})
	defer writing.Wait()
	for round := 0; round < rounds-1; {
		var transaction int64
		n := 0
		must(t, w.NextBatch(ctx, func(e Event) bool {
			if e.Op == OpSynced {
				return true
			}
			if transaction != e.Transaction {
				if n%(keys/2) != 0 {
					t.Errorf("%d updates of the transaction up to %d", n, transaction)
				}
				transaction = e.Transaction
			}
			n++
			_, _ = fmt.Sscan(string(e.Value), &round)
			return true
		}))
		if n%(keys/2) != 0 {
			t.Fatalf("%d events", n)
		}
	}
}

func TestTransactionChecksAllConditions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := startClient(t, server, ClientOptions{})
	var b Batch
	b.Set("a", []byte("1"))
	b.Set("b", []byte("1"))
	b.Delete("a")
	first, err := c.ApplyIf(ctx, &b, IfAbsent().On("a"), IfAbsent().On("b"))
	must(t, err)
	if _, ok := c.Get("a"); ok || c.Sequence() != first+2 {
		t.Errorf("a is there: %v, the replica has %d, the first update %d", ok, c.Sequence(), first)
	}
	var e *ConflictError
	if _, err = c.ApplyIf(ctx, &b, IfAbsent().On("a"), IfAbsent().On("b")); !errors.As(err, &e) || e.Key != "b" || e.Sequence != first+1 {
		t.Error(err)
	}
	last, err := c.ApplyIf(ctx, new(Batch), IfPresent().On("b"))
	if err != nil || last < first+2 {
		t.Error(last, err)
	}
	if _, err := c.ApplyIf(ctx, &b, IfAbsent()); err == nil {
		t.Error("a condition without a key is accepted")
	}
	var large Batch
	for i := range 1025 {
		large.Set(fmt.Sprint(i), []byte("x"))
	}
	if _, err := c.ApplyIf(ctx, &large); err == nil {
		t.Error("a transaction of 1,025 updates is accepted")
	}
}

// Many requests on their way, some of which conflict, are made once each.
func TestStartIf(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := startClient(t, server, ClientOptions{})
	const requests = 20_000
	var outcomes []*Outcome
	var b Batch
	for i := range requests {
		b.Reset()
		b.Set(fmt.Sprint("k", i%100), []byte(fmt.Sprint(i)))
		condition := IfAbsent()
		if i >= 100 {
			condition = IfValue([]byte(fmt.Sprint(i - 100)))
		}
		if i%1000 == 999 {
			condition = IfValue([]byte("none"))
		}
		o, err := c.StartIf(ctx, &b, condition.On(fmt.Sprint("k", i%100)))
		must(t, err)
		outcomes = append(outcomes, o)
	}
	last, conflicts := int64(0), 0
	for i, o := range outcomes {
		seq, err := o.Wait(ctx)
		var e *ConflictError
		switch {
		case errors.As(err, &e):
			conflicts++
			if i%100 != 99 {
				t.Fatal(i, err)
			}
		case err != nil:
			t.Fatal(err)
		case seq <= last:
			t.Fatal(seq, last)
		default:
			last = seq
		}
	}
	if conflicts == 0 || conflicts > requests/100 {
		t.Error(conflicts, "conflicts")
	}
}

// Concurrent increments add up.
func TestAddConcurrently(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	var adding sync.WaitGroup
	for range 4 {
		c := startClient(t, server, ClientOptions{})
		for range 5 {
			adding.Go(func() {
				for range 50 {
					if _, err := c.Add(ctx, "n", 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	adding.Wait()
	if v, ok := server.Get("n"); !ok || string(v) != "1000" {
		t.Errorf("%q", v)
	}
}

// A server of another implementation is asked for nothing.
func TestConditionsNeedAServerThatJudges(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	defer s.beat(1)()
	s.answer(1)
	must(t, c.WaitActive(testContext(t)))
	if _, err := c.SetIf(context.Background(), "k", []byte("v"), IfAbsent()); err != ErrNoTransactions {
		t.Error(err)
	}
}

// An update that is of no transaction cannot say that it is.
func TestUpdateCannotClaimATransaction(t *testing.T) {
	t.Parallel()
	server := startServer(t, ServerOptions{})
	c := newPlainClient(t, server)
	c.set("k", "a=1\nx-more=5\n", "v")
	if m := c.next(); m.properties != "a=1\n" {
		t.Errorf("published with the properties %q", m.properties)
	}
}

// A client with thousands of conflicts, each with a large value, is told of all of them over one
// connection, however slowly it reads: the values that would be too many are left out.
func TestLargeConflictsDisconnectNobody(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	var sessions atomic.Int32
	c := startClient(t, server, ClientOptions{OnState: func(state State, _ string) {
		if state == StateActive {
			sessions.Add(1)
		}
	}})
	_, err := c.SetSync(ctx, "k", make([]byte, 60<<10))
	must(t, err)
	const requests = 4000
	var outcomes []*Outcome
	for range requests {
		o, err := c.StartIf(ctx, new(Batch), IfAbsent().On("k"), WithConflictValue())
		must(t, err)
		outcomes = append(outcomes, o)
	}
	with := 0
	for _, o := range outcomes {
		_, err := o.Wait(ctx)
		var e *ConflictError
		if !errors.As(err, &e) || e.Sequence == 0 {
			t.Fatal(err)
		}
		if e.HasValue {
			with++
		}
	}
	if n := sessions.Load(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	if with == 0 {
		t.Error("no conflict has its value")
	}
}
