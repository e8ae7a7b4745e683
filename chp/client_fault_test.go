package chp

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/internal/wake"
)

// activeClient makes a client ACTIVE at a server whose snapshot is at 10.
func activeClient(t testing.TB, s *scripted, o ClientOptions, snapshot ...pub) *Client {
	t.Helper()
	c := followScripted(t, o, s)
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

// A HUGZ of a server of ours that is ahead of its KVPUBs shows that the last updates were
// lost.
func TestClientHUGZAheadResynchronises(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	c := activeClient(t, s, ClientOptions{})
	s.kvpub(pub{"b", 11, "x"}, hugz(11), hugz(12))
	s.answer(12, pub{"b", 11, "x"}, pub{"lost", 12, "x"})
	wantContents(t, c, 12, map[string]string{"b": "x", "lost": "x"})
}

// With subtrees neither gaps nor HUGZ mean anything.
func TestClientGapsInSubtreesMeanNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ours     bool
		subtrees []string
	}{{asPlain, []string{"/a/"}}, {asOurs, []string{"/a/"}}} {
		s := newScripted(t, test.ours)
		c := activeClient(t, s, ClientOptions{Subtrees: test.subtrees})
		if test.ours {
			s.kvpub(hugz(14), pub{"/a/1", 15, "x"}, hugz(29), pub{"/a/2", 30, "x"})
		} else {
			s.kvpub(hugz(3472328296227680304), pub{"/a/1", 15, "x"}, hugz(99), pub{"/a/2", 30, "x"})
		}
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
	s, err = scriptedAt(t, nil, s.host, s.port) // no other test uses its address
	must(t, err)
	s.answer(2, pub{"b", 1, "y"})
	wantContents(t, c, 2, map[string]string{"b": "y"})
	must(t, c.Set(ctx, "k", []byte("again")))
	if m := s.kvset(); m.value != "again" {
		t.Errorf("after the restart the server got %v", m)
	}
}

// Malformed messages are counted and ignored. Merely unusual ones, such as with the UUIDs
// and properties of the guide's servers, are accepted.
func TestClientMalformedMessages(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{MaxValueSize: 1000}, s)
	stop := s.beat(0)
	id, _ := s.ask()
	stop()
	sync := func(frames ...string) {
		bytes := [][]byte{id}
		for _, f := range frames {
			bytes = append(bytes, []byte(f))
		}
		must(t, s.router.Send(s.ctx, bytes...))
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
	must(t, s.pub.Send(s.ctx, []byte("i"), seqBytes(12)))
	s.publish(kvmsg.KeyKTHXBAI, 12, nil, "", "x")
	s.publish("j", 12, nil, "", "x")
	wantContents(t, c, 12, map[string]string{"a": "x", "b": "x", "f": strings.Repeat("x", 1001), "h": "x", "j": "x"})
	refused := c.Stats().Refused
	for reason, want := range map[Reason]uint64{
		ReasonFrameCount: 3, ReasonKey: 3, ReasonReservedKey: 2, ReasonSequence: 1, ReasonValueTooLarge: 0,
	} {
		if refused[reason] != want {
			t.Errorf("%d refused for %v, want %d", refused[reason], reason, want)
		}
	}
}

// Close ends every waiting call, at any time of a client's life.
func TestClientClose(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	type waits struct {
		in   string
		call func() error
	}
	closed := func(phase string, c *Client, calls ...waits) {
		t.Helper()
		var results []<-chan error
		for _, w := range calls {
			results = append(results, testenv.Blocked(t, w.in, w.call))
		}
		must(t, c.Close())
		for _, result := range results {
			if err := <-result; !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", phase, err)
			}
		}
		for _, w := range calls {
			if err := w.call(); !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %s after Close: %v", phase, w.in, err)
			}
		}
		must(t, c.Close())
		if _, err := c.Watch(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: Watch after Close: %v", phase, err)
		}
	}
	calls := func(c *Client) []waits {
		w, err := c.Watch()
		must(t, err)
		for { // the events that are queued already
			if _, err := w.Next(wake.Ended); err != nil {
				break
			}
		}
		return []waits{
			{"chp.(*Client).WaitActive", func() error { return c.WaitActive(ctx) }},
			{"chp.(*Client).Set", func() error { return c.Set(ctx, "k", []byte("v")) }},
			{"chp.(*Client).SetSync", func() error { _, err := c.SetSync(ctx, "k", []byte("v")); return err }},
			{"chp.(*Client).DeleteSync", func() error { _, err := c.DeleteSync(ctx, "k"); return err }},
			{"chp.(*Watch).Next", func() error { _, err := w.Next(ctx); return err }},
		}
	}

	nobody := newScripted(t, asPlain)
	nobody.close()
	c := followScripted(t, ClientOptions{}, nobody)
	closed("unreachable", c, calls(c)...)

	s := newScripted(t, asPlain)
	c = followScripted(t, ClientOptions{}, s)
	s.subscribed("HUGZ", 1)
	closed("before HUGZ", c, calls(c)...)

	c = followScripted(t, ClientOptions{}, s)
	stop := s.beat(0)
	id, _ := s.ask()
	stop()
	s.kvsync(id, pub{"k", 1, "v"})
	closed("joining", c, calls(c)...)

	s = newScripted(t, asPlain)
	c = activeClient(t, s, ClientOptions{}, pub{"k", 1, "v"})
	must(t, c.Set(ctx, "k", []byte("v")))
	active := calls(c)[2:]
	closed("active", c, append(active, waits{"chp.(*Client).Flush", func() error { return c.Flush(ctx) }})...)
	if v, ok := c.Get("k"); !ok || string(v) != "v" {
		t.Errorf("after Close k = %q, %v", v, ok)
	}
	if c.State() != StateInitial || c.Server() != "" {
		t.Errorf("after Close the client is %v at %q", c.State(), c.Server())
	}
}

// WaitActive and an update whose wait ends without a server both return the reason why the
// client follows no server.
func TestWaitsTellWhyThereIsNoServer(t *testing.T) {
	t.Parallel()
	fails := make(chan struct{}, 1)
	c, err := NewClient(ClientOptions{Servers: []string{"tcp://127.0.0.1:1"}, OnFailure: func(string, error) {
		select {
		case fails <- struct{}{}:
		default:
		}
	}})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	<-fails
	short, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
	defer cancel()
	_, updated := c.SetSync(short, "k", []byte("v"))
	for _, err := range []error{c.WaitActive(short), updated} {
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "tcp://127.0.0.1:1") {
			t.Errorf("error %v", err)
		}
	}

	// A server that is connected and sends nothing has not failed yet.
	s := newScripted(t, asOurs)
	mute := followScripted(t, ClientOptions{}, s)
	s.ask()
	short, cancel = context.WithTimeout(testContext(t), 20*time.Millisecond)
	defer cancel()
	if err := mute.WaitActive(short); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrSilent) {
		t.Errorf("at a server that sends nothing: %v", err)
	}
}
