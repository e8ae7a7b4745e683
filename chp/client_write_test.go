package chp

import (
	"clustermap/internal/hooks"
	"clustermap/internal/testenv"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestClientSetRefuses(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := activeClient(t, s, ClientOptions{MaxValueSize: 10})
	value := []byte("v")
	for _, test := range []struct {
		err  error
		want error
	}{
		{c.Set(ctx, "", value), &MessageError{Reason: ReasonKey}},
		{c.Set(ctx, strings.Repeat("k", 256), value), &MessageError{Reason: ReasonKey}},
		{c.Set(ctx, "a\x00b", value), &MessageError{Reason: ReasonKey}},
		{c.Set(ctx, "KTHXBAI", value), &MessageError{Reason: ReasonReservedKey}},
		{c.Set(ctx, "HUGZ", value), &MessageError{Reason: ReasonReservedKey}},
		{c.Set(ctx, "HUGZilla", value), &MessageError{Reason: ReasonReservedKey}},
		{c.Set(ctx, "k", make([]byte, 11)), &MessageError{Reason: ReasonValueTooLarge}},
		{c.Set(ctx, "k", value, WithTTL(-1)), &MessageError{Reason: ReasonTTL}},
		{c.Set(ctx, "k", value, WithProperty("a\nb", "")), &MessageError{Reason: ReasonProperties}},
		{c.Set(ctx, "k", nil), ErrEmptyValue},
		{c.Delete(ctx, ""), &MessageError{Reason: ReasonKey}},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("error %v, want %v", test.err, test.want)
		}
	}
	must(t, c.Set(ctx, strings.Repeat("k", 255), make([]byte, 10)))
	if m := s.kvset(); len(m.key) != 255 || len(m.value) != 10 {
		t.Errorf("the first update to arrive is %v", m)
	}
}

// echo publishes the next KVSET with a sequence.
func (s *scripted) echo(seq int64) {
	s.t.Helper()
	m := s.kvset()
	s.publish(m.key, seq, m.uuid, m.properties, m.value)
}

type synced struct {
	seq int64
	err error
}

// setSync starts a SetSync.
func setSync(ctx context.Context, c *Client, key, value string) chan synced {
	done := make(chan synced, 1)
	go func() {
		seq, err := c.SetSync(ctx, key, []byte(value))
		done <- synced{seq, err}
	}()
	return done
}

// The error for what is outside of the client's subtrees names it, and shows its bytes.
func TestErrorOutsideSubtreesNamesKey(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := activeClient(t, newScripted(t, asPlain), ClientOptions{Subtrees: []string{"/a/"}})
	_, set := c.SetSync(ctx, "/b/\x1b\u202e", []byte("x"))
	_, del := c.DeleteSync(ctx, "/b/\x1b\u202e")
	var b Batch
	b.Set("/a/1", []byte("x"))
	b.Delete("/b/\x1b\u202e")
	_, apply := c.ApplySync(ctx, &b)
	_, watch := c.Watch("/a/", "/b/\x1b\u202e")
	for _, err := range []error{set, del, apply, watch} {
		if !errors.Is(err, ErrOutsideSubtrees) || err.Error() != `chp: outside of the client's subtrees: "/b/\x1b\u202e"` {
			t.Errorf("%v", err)
		}
	}
	view := &OutsideViewError{strings.Repeat("k", 1<<20), "/a/"} // of a key that cannot be
	if n := len(view.Error()); n > 400 {
		t.Errorf("%d bytes", n)
	}
}

func TestClientSetSync(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := activeClient(t, s, ClientOptions{Subtrees: []string{"/a/"}})

	first := setSync(ctx, c, "/a/1", "x")
	m := s.kvset()
	if c.Len() != 0 {
		t.Error("the update is to be seen before the server has published it")
	}
	s.publish("/a/1", 11, []byte("another client's"), "", "y")
	s.publish("/a/1", 12, m.uuid, "", "x")
	if got := <-first; got.seq != 12 || got.err != nil {
		t.Errorf("SetSync: %v", got)
	}
	if v, _ := c.Get("/a/1"); string(v) != "x" {
		t.Errorf("after SetSync the value is %q", v)
	}

	// An update that cannot come back is not sent.
	if _, err := c.SetSync(ctx, "/b/1", []byte("x")); !errors.Is(err, ErrOutsideSubtrees) {
		t.Errorf("outside of the subtrees: %v", err)
	}
	var invalid *MessageError
	for _, key := range []string{"", "HUGZ/1", "KTHXBAI", strings.Repeat("k", 256)} {
		if _, err := c.SetSync(ctx, key, []byte("x")); !errors.As(err, &invalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := c.DeleteSync(ctx, "/b/1"); !errors.Is(err, ErrOutsideSubtrees) {
		t.Errorf("outside of the subtrees: %v", err)
	}

	// An update to another subtree does not come back, and Flush does not wait for it.
	must(t, c.Set(ctx, "/b/1", []byte("x")))
	must(t, c.Flush(ctx))
	if m := s.kvset(); m.key != "/b/1" {
		t.Errorf("got %v", m)
	}

	// The server passes over an update.
	passed := setSync(ctx, c, "/a/2", "refused")
	s.kvset()
	taken := setSync(ctx, c, "/a/3", "taken")
	s.echo(13)
	if got := <-passed; !errors.Is(got.err, ErrUncertain) {
		t.Errorf("an update that the server passed over: %v", got)
	}
	if got := <-taken; got.seq != 13 || got.err != nil {
		t.Errorf("the next one: %v", got)
	}

	short, cancel := context.WithCancel(ctx)
	left := setSync(short, c, "/a/4", "x")
	s.kvset()
	cancel()
	if got := <-left; !errors.Is(got.err, context.Canceled) {
		t.Errorf("with an ended context: %v", got)
	}

	gone := setSync(ctx, c, "/a/5", "x")
	s.kvset()
	s.close()
	if got := <-gone; !errors.Is(got.err, ErrUncertain) {
		t.Errorf("with a broken connection: %v", got)
	}
	if err := c.Flush(ctx); !errors.Is(err, ErrUncertain) {
		t.Errorf("Flush after updates that did not come back: %v", err)
	}
	must(t, c.Flush(ctx))
}

func TestClientFlush(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := activeClient(t, s, ClientOptions{})
	must(t, c.Flush(ctx))
	for i := range 10 {
		must(t, c.Set(ctx, fmt.Sprint(i), []byte("v")))
	}
	flushed := testenv.Blocked(t, "chp.(*Client).Flush", func() error { return c.Flush(ctx) })
	for i := range 9 {
		s.echo(int64(11 + i))
	}
	eventually(t, "all but the last have come back", func() bool { return c.Sequence() == 19 })
	if len(flushed) != 0 {
		t.Errorf("Flush returned before the last update came back: %v", <-flushed)
	}
	s.echo(20)
	must(t, <-flushed)
	if c.Len() != 10 {
		t.Errorf("%d keys", c.Len())
	}
	short, cancel := context.WithCancel(ctx)
	must(t, c.Set(ctx, "k", []byte("v")))
	flushed = testenv.Blocked(t, "chp.(*Client).Flush", func() error { return c.Flush(short) })
	cancel()
	if err := <-flushed; !errors.Is(err, context.Canceled) {
		t.Errorf("Flush with an ended context: %v", err)
	}
}

// A client's updates go to the server that it follows and, as far as they have
// room, to the others.
func TestClientWritesToAllServers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first, second := newScripted(t, asPlain), newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, first, second)
	first.answer(1)
	must(t, c.WaitActive(ctx))
	must(t, c.Set(ctx, "k", []byte("v")))
	first.kvset()
	eventually(t, "the second server is connected", func() bool { return second.connected("PUB at P+2") == 1 })
	eventually(t, "the second server gets an update", func() bool { // its subscription may take a moment more
		must(t, c.Set(ctx, "again", []byte("v")))
		first.kvset()
		m, err := second.sub.Recv(wake.Ended)
		if err == nil && string(m[2]) == "" {
			t.Error("without UUID")
		}
		return err == nil
	})
}

// The updates of a client that follows a server of ours go to that server alone:
// the next one has a map of its own, and gets no connection for updates. That
// holds whether the first update comes before the session or in it.
func TestClientWritesToOneServerOfOurs(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first, second := newScripted(t, asOurs), newScripted(t, asOurs)
	c := followScripted(t, ClientOptions{}, first, second)
	first.answer(1)
	must(t, c.WaitActive(ctx))
	must(t, c.Set(ctx, "k", []byte("v")))
	first.kvset()
	if second.connected("PUB at P+2") != 0 {
		t.Error("the second server has a connection for updates")
	}
	first.close()
	second.answer(1)
	eventually(t, "the client follows the second server", func() bool { return c.State() == StateActive && c.Server() == second.name() })
	must(t, c.Set(ctx, "k", []byte("w")))
	if m := second.kvset(); m.value != "w" {
		t.Errorf("the first update of the second server is %v", m)
	}
}

// Set waits for a server, and for nothing else: when its context ends, nothing
// is sent.
func TestClientSetWaits(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := c.Set(short, "too soon", []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Set without a server: %v", err)
	}
	one := testenv.Blocked(t, "chp.(*Client).Set", func() error { return c.Set(ctx, "one", []byte("v")) })
	two := testenv.Blocked(t, "chp.(*Client).Set", func() error { return c.Set(ctx, "two", []byte("v")) })
	s.answer(1)
	must(t, <-one)
	must(t, <-two)
	for range 2 {
		if m := s.kvset(); m.key == "too soon" {
			t.Error("an update was sent though its context had ended")
		}
	}
}

// Back-pressure: a server that does not read its collector makes Set wait, and
// when the client turns to the next server, Set goes there.
func TestClientSetUnderBackPressure(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	stuck, next := newScripted(t, asPlain), newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{SendQueue: 1 << 16}, stuck, next)
	stuck.answer(1)
	must(t, c.WaitActive(ctx))
	value := make([]byte, 1<<16)
	full := false // the server's queue; behind it are the buffers of the connection
	for sent := 0; ; {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		err := c.Set(short, fmt.Sprint(sent), value)
		cancel()
		if err == nil {
			sent++
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		was := full
		full = slices.ContainsFunc(stuck.sub.Peers(), func(p sockets.PeerStats) bool { return p.PendingBytes >= sockets.DefaultHWMBytes })
		if was {
			break
		}
	}
	waiting := testenv.Blocked(t, "chp.(*Client).Set", func() error { return c.Set(ctx, "waiting", value) })
	stuck.close()
	next.answer(1)
	// The next server has got the updates of the first one, as far as there was room:
	// perhaps so many that it has no room for another one before it reads. The first one
	// may have made room as it was closed: then the update went there and is uncertain,
	// which Flush says.
	reading, read := context.WithCancel(ctx)
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			m, err := next.sub.Recv(reading)
			if err != nil {
				return
			}
			if m := toKV(t, m); m.key == "waiting" {
				next.publish(m.key, 2, m.uuid, "", m.value)
				return
			}
		}
	})
	must(t, <-waiting)
	if err := c.Flush(ctx); !errors.Is(err, ErrUncertain) {
		t.Errorf("Flush after the failover: %v", err)
	}
	read()
	readers.Wait()
}

// TestSetSyncIsWrittenByItsSenders: for the update of a lone SetSync, the KVPUB and the reply no
// goroutine is woken to write them, however soon it follows the last one. It is not parallel, as
// it replaces a hook.
func TestSetSyncIsWrittenByItsSenders(t *testing.T) {
	var mu sync.Mutex
	said := map[any]int{}
	alone := hooks.Alone
	hooks.Alone = func(socket any) {
		mu.Lock()
		said[socket]++
		mu.Unlock()
		alone(socket)
	}
	defer func() { hooks.Alone = alone }()
	t.Run("", func(t *testing.T) {
		ctx := testContext(t)
		s := startServer(t, ServerOptions{HeartbeatInterval: hang})
		c := startClient(t, s, ClientOptions{})
		for n := 1; n <= 100 || len(said) < 3; n++ { // the client's goroutine sends some, when it has not slept yet
			_, err := c.SetSync(ctx, "/k", []byte("v"))
			must(t, err)
			mu.Lock()
			published, replied := said[s.publisher], said[s.router]
			mu.Unlock()
			if published != n || replied != n {
				t.Fatalf("of %d KVPUBs %d came alone, of the replies %d", n, published, replied)
			}
		}
	})
}

// The server writes nothing back to a client for updates that nobody waits for, and one reply
// for a Flush behind them. Each would wake the client beside those whom the update is for.
func TestUpdatesThatNobodyWaitsForGetNoReply(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := startClient(t, server, ClientOptions{})
	replies := func() (n uint64) {
		for _, p := range server.router.Peers() {
			n += p.MessagesOut
		}
		return n
	}
	_, err := c.SetSync(ctx, "k", []byte("first"))
	must(t, err)
	const before = 3 // two at the start of the session
	eventually(t, "the first replies are counted", func() bool { return replies() == before })
	for i := range 50 {
		value := strconv.Itoa(i)
		must(t, c.Set(ctx, "k", []byte(value)))
		eventually(t, "the update is back", func() bool { v, ok := c.Get("k"); return ok && string(v) == value })
	}
	if n := replies() - before; n > 0 {
		t.Errorf("%d replies to updates that nobody waits for", n)
	}
	must(t, c.Flush(ctx))
	eventually(t, "the reply for Flush is counted", func() bool { return replies() == before+1 })
}

// An update that needs all of the SendQueue waits only until those before it are acknowledged,
// although nothing else waits for these.
func TestLargeUpdateAfterSmallOne(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := startClient(t, server, ClientOptions{})
	for range 3 {
		must(t, c.Set(ctx, "small", []byte("x")))
		must(t, c.Set(ctx, "large", make([]byte, DefaultSendQueue+1)))
	}
	must(t, c.Flush(ctx))
}
