package chp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
)

// activeClient makes a client ACTIVE at a server whose snapshot is at 10.
func activeClient(t testing.TB, s *scripted, o ClientOptions, snapshot ...pub) *Client {
	t.Helper()
	c := follow(t, o, s)
	s.subscribed("HUGZ", 1)
	s.answer(10, snapshot...)
	must(t, c.WaitActive(testContext(t)))
	return c
}

// A missing sequence of a server of ours is a lost update: the client takes a
// new snapshot, of the same server.
func TestClientGapResynchronises(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	c := activeClient(t, s, ClientOptions{}, pub{"a", 1, "x"})
	s.kvpub(pub{"b", 11, "x"}, pub{"c", 13, "x"})
	s.answer(20, pub{"d", 12, "x"})
	wantContents(t, c, 20, map[string]string{"d": "x"})
	if stats := c.Stats(); stats.Gaps != 1 || stats.Syncs != 2 {
		t.Errorf("%d gaps, %d snapshots", stats.Gaps, stats.Syncs)
	}
}

// A HUGZ of a server of ours that is ahead of its KVPUBs tells of a lost tail.
func TestClientHUGZAheadResynchronises(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	c := activeClient(t, s, ClientOptions{})
	s.kvpub(pub{"b", 11, "x"}, hugz(11), hugz(12))
	s.answer(12, pub{"b", 11, "x"}, pub{"lost", 12, "x"})
	wantContents(t, c, 12, map[string]string{"b": "x", "lost": "x"})
}

// From another server, or with subtrees, neither gaps nor HUGZ mean anything.
func TestClientGapsOfOthersMeanNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ours     bool
		subtrees []string
	}{{asPlain, nil}, {asOurs, []string{"/a/"}}} {
		s := newScripted(t, test.ours)
		c := activeClient(t, s, ClientOptions{Subtrees: test.subtrees})
		s.kvpub(hugz(3472328296227680304), pub{"/a/1", 15, "x"}, hugz(99), pub{"/a/2", 30, "x"})
		wantContents(t, c, 30, map[string]string{"/a/1": "x", "/a/2": "x"})
		if stats := c.Stats(); stats.Gaps != 0 || stats.Syncs != 1 {
			t.Errorf("%d gaps, %d snapshots", stats.Gaps, stats.Syncs)
		}
	}
}

// A client whose server restarts, with other content and lower sequences, finds
// it again on the same port.
func TestClientServerRestarts(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := activeClient(t, s, ClientOptions{}, pub{"a", 1, "x"}, pub{"b", 2, "x"})
	must(t, c.Set(ctx, "k", []byte("v")))
	s.kvset()
	s.close()
	if v, ok := c.Get("a"); !ok || string(v) != "x" {
		t.Errorf("without a server a = %q, %v", v, ok)
	}
	var err error
	if s, err = scriptedAt(t, asPlain, s.port); err != nil {
		t.Skip("the port was taken meanwhile:", err)
	}
	s.answer(2, pub{"b", 1, "y"})
	wantContents(t, c, 2, map[string]string{"b": "y"})
	must(t, c.Set(ctx, "k", []byte("again")))
	if m := s.kvset(); m.value != "again" {
		t.Errorf("after the restart the server got %v", m)
	}
}

// What is malformed is counted and left out. What is merely unusual, such as
// the UUIDs and properties of the guide's servers, is taken.
func TestClientMalformedMessages(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := follow(t, ClientOptions{MaxValueSize: 1000}, s)
	stop := s.beat(0)
	id, _ := s.ask()
	stop()
	sync := func(frames ...string) {
		octets := [][]byte{id}
		for _, f := range frames {
			octets = append(octets, []byte(f))
		}
		must(t, s.router.Send(s.ctx, octets...))
	}
	seq := "\x00\x00\x00\x00\x00\x00\x00\x01"
	sync("a", seq, "0123456789abcdef", "ttl=1699999999999\n", "x") // absolute time to live
	sync("b", seq, "short", "no line", "x")
	sync("c", seq, "", "x")
	sync("", seq, "", "", "x")
	sync(strings.Repeat("k", 256), seq, "", "", "x")
	sync("d", "1", "", "", "x")
	sync("e\x00", seq, "", "", "x")
	sync("HUGZ1", seq, "", "", "x")
	sync("f", seq, "", "", strings.Repeat("x", 1001)) // over our own limit, but the server has it
	sync("g")
	s.kthxbai(id, 10, "")
	must(t, c.WaitActive(testContext(t)))
	s.publish("h", 11, []byte("seven"), "=", "x")
	must(t, s.pub.Send(s.ctx, []byte("i"), seqOctets(12)))
	s.publish(keyKTHXBAI, 13, nil, "", "x")
	s.publish("j", 14, nil, "", "x")
	wantContents(t, c, 14, map[string]string{"a": "x", "b": "x", "f": strings.Repeat("x", 1001), "h": "x", "j": "x"})
	refused := c.Stats().Refused
	for reason, want := range map[Reason]uint64{
		ReasonFrameCount: 3, ReasonKey: 3, ReasonReservedKey: 2, ReasonSequence: 1, ReasonValueTooLarge: 0,
	} {
		if refused[reason] != want {
			t.Errorf("%d refused for %v, want %d", refused[reason], reason, want)
		}
	}
}

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

	// What cannot come back is not sent.
	if _, err := c.SetSync(ctx, "/b/1", []byte("x")); !errors.Is(err, ErrOutsideSubtrees) {
		t.Errorf("outside of the subtrees: %v", err)
	}
	if _, err := c.DeleteSync(ctx, "/b/1"); !errors.Is(err, ErrOutsideSubtrees) {
		t.Errorf("outside of the subtrees: %v", err)
	}

	// An update to another subtree does not come back and nobody waits for it.
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
	flushed := make(chan error, 1)
	go func() { flushed <- c.Flush(ctx) }()
	for i := range 9 {
		s.echo(int64(11 + i))
	}
	select {
	case err := <-flushed:
		t.Errorf("Flush returned before the last update came back: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	s.echo(20)
	must(t, <-flushed)
	if c.Len() != 10 {
		t.Errorf("%d keys", c.Len())
	}
	short, cancel := context.WithCancel(ctx)
	must(t, c.Set(ctx, "k", []byte("v")))
	go func() { flushed <- c.Flush(short) }()
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
	c := follow(t, ClientOptions{}, first, second)
	first.answer(1)
	must(t, c.WaitActive(ctx))
	must(t, c.Set(ctx, "k", []byte("v")))
	first.kvset()
	eventually(t, "the second server is connected", func() bool { return second.connected("PUB at P+2") == 1 })
	for i := 0; ; i++ { // its subscription may take a moment more
		must(t, c.Set(ctx, fmt.Sprint(i), []byte("v")))
		first.kvset()
		if m, err := second.sub.Recv(ended); err == nil {
			if string(m[2]) == "" {
				t.Error("without UUID")
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// Set waits for a server, and for nothing else: when its context ends, nothing
// is sent.
func TestClientSetWaits(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := follow(t, ClientOptions{}, s)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := c.Set(short, "too soon", []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Set without a server: %v", err)
	}
	done := make(chan error, 2)
	for _, key := range []string{"one", "two"} {
		go func() { done <- c.Set(ctx, key, []byte("v")) }()
	}
	time.Sleep(10 * time.Millisecond)
	s.answer(1)
	must(t, <-done)
	must(t, <-done)
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
	c := follow(t, ClientOptions{SendQueue: 1 << 16}, stuck, next)
	stuck.answer(1)
	must(t, c.WaitActive(ctx))
	value := make([]byte, 1<<16)
	sent := 0
	for {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		err := c.Set(short, fmt.Sprint(sent), value)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		must(t, err)
		sent++
	}
	waiting := make(chan error)
	go func() { waiting <- c.Set(ctx, "waiting", value) }()
	time.Sleep(20 * time.Millisecond)
	stuck.close()
	next.answer(1)
	must(t, <-waiting)
	for {
		if m := next.kvset(); m.key == "waiting" {
			next.publish(m.key, 2, m.uuid, "", "v")
			break
		}
	}
	if err := c.Flush(ctx); !errors.Is(err, ErrUncertain) {
		t.Errorf("Flush after the failover: %v", err)
	}
}

// Close ends whatever waits, at any time of a client's life.
func TestClientClose(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	closed := func(phase string, c *Client, calls ...func() error) {
		t.Helper()
		errs := make(chan error, len(calls))
		for _, call := range calls {
			go func() { errs <- call() }()
		}
		time.Sleep(10 * time.Millisecond)
		must(t, c.Close())
		for range calls {
			if err := <-errs; !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", phase, err)
			}
		}
		for i, call := range calls {
			if err := call(); !errors.Is(err, ErrClosed) {
				t.Errorf("%s: call %d after Close: %v", phase, i, err)
			}
		}
		must(t, c.Close())
		if _, err := c.Watch(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: Watch after Close: %v", phase, err)
		}
	}
	calls := func(c *Client) []func() error {
		w, err := c.Watch()
		must(t, err)
		for { // what there is already
			if _, err := w.Next(ended); err != nil {
				break
			}
		}
		return []func() error{
			func() error { return c.WaitActive(ctx) },
			func() error { return c.Set(ctx, "k", []byte("v")) },
			func() error { _, err := c.SetSync(ctx, "k", []byte("v")); return err },
			func() error { _, err := c.DeleteSync(ctx, "k"); return err },
			func() error { _, err := w.Next(ctx); return err },
		}
	}

	nobody := newScripted(t, asPlain)
	nobody.close()
	c := follow(t, ClientOptions{}, nobody)
	closed("unreachable", c, calls(c)...)

	s := newScripted(t, asPlain)
	c = follow(t, ClientOptions{}, s)
	s.subscribed("HUGZ", 1)
	closed("before HUGZ", c, calls(c)...)

	c = follow(t, ClientOptions{}, s)
	stop := s.beat(0)
	id, _ := s.ask()
	stop()
	s.kvsync(id, pub{"k", 1, "v"})
	closed("joining", c, calls(c)...)

	s = newScripted(t, asPlain)
	c = activeClient(t, s, ClientOptions{}, pub{"k", 1, "v"})
	must(t, c.Set(ctx, "k", []byte("v")))
	active := calls(c)[2:]
	closed("active", c, append(active, func() error { return c.Flush(ctx) })...)
	if v, ok := c.Get("k"); !ok || string(v) != "v" {
		t.Errorf("after Close k = %q, %v", v, ok)
	}
	if c.State() != StateInitial || c.Server() != "" {
		t.Errorf("after Close the client is %v at %q", c.State(), c.Server())
	}
}

// Two servers that both answer nothing must not make the client spin.
func TestClientBacksOff(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	c.servers = make([]address, 3)
	for failures, most := range map[int]time.Duration{1: 0, 2: 0, 3: backOffFirst, 6: 2 * backOffFirst, 9: 4 * backOffFirst, 1000: backOffMost} {
		for range 100 {
			d := c.backOff(failures)
			if d > most || d < most/2 {
				t.Errorf("after %d failures: %v, want up to %v", failures, d, most)
			}
		}
	}
	gap, broken := &GapError{1, 3}, fmt.Errorf("%w: %w", errDisconnected, &sockets.PeerError{Remote: "x", Err: net.ErrClosed})
	for _, test := range []struct {
		active bool
		err    error
		want   int
	}{{true, gap, 1}, {false, gap, 1}, {true, broken, 1}, {false, broken, 2}, {true, errSilent, 2}, {false, errUnreachable, 2}} {
		if got := c.successor(1, test.active, test.err); got != test.want {
			t.Errorf("after %v, active %v: server %d, want %d", test.err, test.active, got, test.want)
		}
	}
	if got := c.successor(2, true, errSilent); got != 0 {
		t.Errorf("after the last server comes %d", got)
	}
}
