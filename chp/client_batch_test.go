package chp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/chp/internal/submit"
	"clustermap/internal/testenv"
	"clustermap/internal/wake"
)

func TestClientApply(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{Subtrees: []string{"/a/"}})
	other := startClient(t, s, ClientOptions{})
	var b Batch
	must(t, c.Apply(wake.Ended, &b)) // empty: it needs no server
	for i := range 1000 {
		b.Set(fmt.Sprintf("/a/%d", i%100), []byte(fmt.Sprint(i)), WithTTL(time.Hour))
	}
	b.Delete("/a/7")
	b.Set("/outside", []byte("v"), WithProperty("colour", "red"))
	for range 2 { // a batch can be applied again
		must(t, c.Apply(ctx, &b))
	}
	must(t, c.Flush(ctx))
	if got, _ := c.Get("/a/42"); c.Len() != 99 || string(got) != "942" {
		t.Errorf("%d keys, /a/42 = %q", c.Len(), got)
	}
	if _, p := c.Lookup("/a/7"); p != PresenceAbsent {
		t.Errorf("/a/7 is %v", p)
	}
	if ttl, _ := timeLeft(c, "/a/8"); ttl <= 0 {
		t.Error("/a/8 has no time to live")
	}
	eventually(t, "the other client has all keys", func() bool { return other.Len() == 100 })
	if n := s.Stats().Updates; n != 2004 {
		t.Errorf("%d updates, want 2004", n)
	}
}

// ApplySync returns when the whole batch can be read, with the sequence of its last update.
func TestClientApplySync(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{Subtrees: []string{"/a/"}})
	var b Batch
	if seq, err := c.ApplySync(wake.Ended, &b); seq != 0 || err != nil { // empty: it needs no server
		t.Errorf("an empty batch: %d, %v", seq, err)
	}
	for i := range 1000 {
		b.Set(fmt.Sprintf("/a/%d", i%100), []byte(fmt.Sprint(i)))
	}
	b.Delete("/a/7")
	for range 2 {
		seq, err := c.ApplySync(ctx, &b)
		must(t, err)
		if got, _ := c.Get("/a/42"); c.Len() != 99 || string(got) != "942" || seq != s.Sequence() || seq != c.Sequence() {
			t.Errorf("%d keys, /a/42 = %q, sequence %d", c.Len(), got, seq)
		}
	}
	b.Set("/outside", []byte("v"))
	if _, err := c.ApplySync(ctx, &b); !errors.Is(err, ErrOutsideSubtrees) || s.Stats().Updates != 2002 {
		t.Errorf("a key outside of the subtrees: %v, %d updates", err, s.Stats().Updates)
	}
	if _, n := c.writer.Pending(); n > 0 {
		t.Errorf("%d waits are left", n)
	}
}

// ApplySync returns the errors of its own updates, and Flush does not return them again.
func TestClientApplySyncFails(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{MaxMapBytes: 2000})
	c := startClient(t, s, ClientOptions{})
	must(t, c.Set(ctx, "/before", make([]byte, 3000)))
	var b Batch
	b.Set("/small", []byte("v"))
	b.Set("/large", make([]byte, 3000))
	b.Set("/last", []byte("v"))
	full := &MessageError{Reason: ReasonMapFull}
	if seq, err := c.ApplySync(ctx, &b); seq != 0 || !errors.Is(err, full) {
		t.Errorf("%d, %v", seq, err)
	}
	if _, ok := c.Get("/last"); !ok || c.Len() != 2 {
		t.Errorf("%d keys; the other updates are not made", c.Len())
	}
	if err := c.Flush(ctx); !errors.Is(err, full) {
		t.Errorf("the update before the batch: %v", err)
	}
	must(t, c.Flush(ctx))
}

// When the context of ApplySync ends, it returns, and the updates still come back. Across a
// restart with another map its updates are uncertain.
func TestClientApplySyncGivesUp(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(7)
	var b Batch
	b.Set("/a", []byte("1"))
	b.Set("/b", []byte("2"))
	ctx, cancel := context.WithCancel(testContext(t))
	applied := make(chan error, 1)
	apply := func() {
		_, err := c.ApplySync(ctx, &b)
		applied <- err
	}
	go apply()
	u := s.kvset()
	s.kvset()
	cancel()
	if err := <-applied; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	s.publish(u.key, 8, u.uuid, "", u.value)
	eventually(t, "the first update comes back", func() bool { return c.Sequence() == 8 })
	ctx = testContext(t)
	go apply()
	s.kvset()
	u = s.kvset()
	s.publish(u.key, 9, u.uuid, "", u.value)
	if err := <-applied; !errors.Is(err, ErrUncertain) {
		t.Errorf("the server has skipped an update: %v, want ErrUncertain", err)
	}
}

func TestClientApplyRefuses(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{MaxValueSize: 100})
	c := startClient(t, s, ClientOptions{})
	limited := startClient(t, s, ClientOptions{MaxValueSize: 10})
	batch := func(change func(*Batch)) *Batch {
		b := new(Batch)
		b.Set("/first", []byte("v"))
		change(b)
		return b
	}
	large := batch(func(b *Batch) { b.Set("/large", make([]byte, 101)) })
	for what, test := range map[string]struct{ err, want error }{
		"an empty value":             {c.Apply(ctx, batch(func(b *Batch) { b.Set("/k", nil) })), ErrEmptyValue},
		"a reserved key":             {c.Apply(ctx, batch(func(b *Batch) { b.Delete("HUGZ") })), &MessageError{Reason: ReasonReservedKey}},
		"a value above the server's": {c.Apply(ctx, large), &MessageError{Reason: ReasonValueTooLarge}},
		"a value above the client's": {limited.Apply(ctx, batch(func(b *Batch) { b.Set("/k", make([]byte, 11)) })), &MessageError{Reason: ReasonValueTooLarge}},
		"a deletion in model 4":      {idleModel(t, 4).Apply(ctx, batch(func(b *Batch) { b.Delete("/k") })), ErrModel},
		"a time to live in model 4":  {idleModel(t, 4).Apply(ctx, batch(func(b *Batch) { b.Set("/k", []byte("v"), WithTTL(1e9)) })), ErrModel},
		"a context that has ended":   {idleClient(t, ClientOptions{}).Apply(wake.Ended, batch(func(*Batch) {})), context.Canceled},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", what, test.err, test.want)
		}
	}
	must(t, c.Flush(ctx))
	if n := s.Stats().Updates; n != 0 {
		t.Errorf("%d updates were sent, want 0", n)
	}
	must(t, c.Close())
	if err := c.Apply(ctx, batch(func(*Batch) {})); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// idleModel returns a client of a Clone model without a server.
func idleModel(t *testing.T, m Model) *Client {
	t.Helper()
	return idleClient(t, ClientOptions{Model: m})
}

// A batch larger than the send queue waits for room. When its context ends meanwhile, the
// first part has been queued.
func TestClientApplyWaitsForRoom(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{SendQueue: 64 << 10})
	var b Batch
	for i := range 2000 {
		b.Set(fmt.Sprintf("/%d", i), make([]byte, 500))
	}
	must(t, c.Apply(ctx, &b))
	must(t, c.Flush(ctx))
	if c.Len() != 2000 {
		t.Errorf("%d keys", c.Len())
	}

	stuck := newScripted(t, asPlain)
	full := activeClient(t, stuck, ClientOptions{SendQueue: 64 << 10})
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	for i := 0; ; i++ {
		if err := full.Apply(short, &b); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			break
		}
		if i == 1000 {
			t.Fatal("the queue has no end")
		}
	}
	if m := stuck.kvset(); m.key != "/0" {
		t.Errorf("the first update is %q", m.key)
	}
}

// Applying a batch that has room allocates nothing.
func TestClientBatchAllocatesNothing(t *testing.T) {
	c := idleClient(t, ClientOptions{})
	c.writer.Begin(&submit.Server{Session: nowhere{}, Uplink: nowhere{}}) // nothing is sent: the writer does not run
	var b Batch
	for i := range 100 {
		b.Set(fmt.Sprintf("/%d", i), []byte("value"), WithTTL(time.Hour))
	}
	apply := func() {
		if err := c.Apply(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		if bytes, _ := c.writer.Pending(); bytes < b.Size() {
			t.Fatalf("%d bytes are staged", bytes)
		}
		c.writer.Fail(ErrClosed)
	}
	apply()
	if n := testenv.Allocs(0, 100, apply); n >= 1 {
		t.Errorf("%v allocations, want 0", n)
	}
}
