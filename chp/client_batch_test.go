package chp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestClientApply(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{Subtrees: []string{"/a/"}})
	other := startClient(t, s, ClientOptions{})
	var b Batch
	must(t, c.Apply(ended, &b)) // empty: it needs no server
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
		"a context that has ended":   {idleClient(t, ClientOptions{}).Apply(ended, batch(func(*Batch) {})), context.Canceled},
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
	w := &c.writer
	w.session = &session{client: c, uplink: &uplink{}} // nothing is sent: the writer does not run
	var b Batch
	for i := range 100 {
		b.Set(fmt.Sprintf("/%d", i), []byte("value"), WithTTL(time.Hour))
	}
	apply := func() {
		if err := c.Apply(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		if w.first.next != nil || w.first.messages != 100 {
			t.Fatalf("%d updates in the first stage", w.first.messages)
		}
		w.clear()
	}
	apply()
	if n := testing.AllocsPerRun(100, apply); n >= 1 {
		t.Errorf("%v allocations, want 0", n)
	}
}
