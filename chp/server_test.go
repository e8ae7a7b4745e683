package chp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/sockets"
)

// portsOf returns P, P+1 and P+2 of a server's endpoints.
func portsOf(e Endpoints) [3]int {
	return [3]int{portOf(e.Snapshot), portOf(e.Publisher), portOf(e.Collector)}
}

// The server binds ROUTER on P, PUB on P+1, SUB on P+2.
func TestServerPorts(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	p := portsOf(s.Endpoints())
	if p[0] == 0 || p[1] != p[0]+1 || p[2] != p[0]+2 {
		t.Fatalf("ports are %v", p)
	}
	ctx := testContext(t)
	for i, want := range []string{"ROUTER", "PUB", "SUB"} {
		got := make(chan string, 1)
		o := sockets.Options{Linger: sockets.LingerNone, Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventHandshakeSucceeded {
				select {
				case got <- e.Peer.SocketType():
				default:
				}
			}
		}}
		var err error
		endpoint := fmt.Sprintf("tcp://127.0.0.1:%d", p[i])
		switch want {
		case "ROUTER":
			var d *sockets.Dealer
			d, err = sockets.NewDealer(o)
			must(t, err)
			defer d.Close()
			err = d.Connect(endpoint)
		case "PUB":
			var d *sockets.Sub
			d, err = sockets.NewSub(o)
			must(t, err)
			defer d.Close()
			err = d.Connect(endpoint)
		case "SUB":
			var d *sockets.Pub
			d, err = sockets.NewPub(o)
			must(t, err)
			defer d.Close()
			err = d.Connect(endpoint)
		}
		must(t, err)
		select {
		case kind := <-got:
			if kind != want {
				t.Errorf("P+%d is %s, not %s", i, kind, want)
			}
		case <-ctx.Done():
			t.Fatalf("no handshake on P+%d", i)
		}
	}
}

// ICANHAZ is answered by any number of KVSYNC and one KTHXBAI, whose sequence is the
// highest. They come to the client that asked.
func TestSnapshotGoesToWhoAsked(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	a, b := newPlainClient(t, s), newPlainClient(t, s)
	if all, bye := a.snapshot(""); len(all) != 0 || bye.value != "" || bye.seq != s.Sequence() {
		t.Fatalf("empty map: %v, %+v", all, bye)
	}
	for i := range 1000 {
		a.set(fmt.Sprintf("/x/%d", i%700), "", fmt.Sprint(i))
	}
	for range 1000 {
		b.next()
	}
	for _, c := range []*plainClient{a, b} {
		all, bye := c.snapshot("")
		got := map[string]string{}
		var highest int64
		for _, m := range all {
			got[m.key] = m.value
			highest = max(highest, m.seq)
			if len(m.uuid) != 0 || m.properties != "" {
				t.Fatalf("KVSYNC with UUID %x and properties %q", m.uuid, m.properties)
			}
		}
		if len(all) != 700 || len(got) != 700 || got["/x/5"] != "705" || got["/x/650"] != "650" {
			t.Fatalf("%d KVSYNC of %d keys; /x/5 = %q", len(all), len(got), got["/x/5"])
		}
		if bye.seq != highest || bye.seq != s.Sequence() {
			t.Errorf("KTHXBAI has %d, the highest KVSYNC %d, the server %d", bye.seq, highest, s.Sequence())
		}
	}
}

// The subtree is empty or in slash form; KTHXBAI carries it. A request in
// another form is refused without harm to the connection.
func TestServerRefusesOtherSubtrees(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := newPlainClient(t, s)
	for _, key := range []string{"/a/1", "/a/b/2", "/ab/3", "/a", "plain", "/c/d/e/4"} {
		c.set(key, "", "v")
		c.next()
	}
	must(t, c.dealer.Send(c.ctx, []byte("ICANHAZ?"), []byte("/a")))
	must(t, c.dealer.Send(c.ctx, []byte("ICANHAZ?")))
	must(t, c.dealer.Send(c.ctx, []byte("ICANHAZ?"), []byte("a/")))
	must(t, c.dealer.Send(c.ctx, []byte("ICANHAZ!"), nil))
	must(t, c.dealer.Send(c.ctx, []byte("ICANHAZ?"), nil, nil))
	for subtree, want := range map[string]int{"": 6, "/a/": 2, "/a/b/": 1, "/c/d/": 1, "/none/": 0} {
		all, bye := c.snapshot(subtree)
		if len(all) != want || bye.value != subtree {
			t.Errorf("%q: %d keys, KTHXBAI for %q", subtree, len(all), bye.value)
		}
	}
	if n := s.Stats().BadAsks; n != 5 {
		t.Errorf("%d requests refused, want 5", n)
	}
}

// Every update is published, with its UUID and its properties. Sequences increase
// strictly, here by one each. The sequence that a client sends has no meaning.
func TestUpdatesArePublishedInOrder(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := newPlainClient(t, s)
	seq := s.Sequence()
	for i := range 500 {
		given := []byte{0xff, 0, 0, 0, 0, 0, 0, byte(i)}
		uuid := []byte("0123456789abcdef")
		if i%3 == 0 {
			uuid = nil
		}
		c.send([]byte("k"), given, uuid, []byte("colour=red\n"), fmt.Append(nil, i))
		m := c.next()
		if m.seq != seq+1 || m.key != "k" || m.value != fmt.Sprint(i) || string(m.uuid) != string(uuid) || m.properties != "colour=red\n" {
			t.Fatalf("update %d came as %+v after %d", i, m, seq)
		}
		seq = m.seq
	}
}

// Sequences survive a restart: a later run begins above an earlier one.
func TestSequencesSurviveRestart(t *testing.T) {
	t.Parallel()
	first := startServer(t, ServerOptions{})
	c := newPlainClient(t, first)
	for range 100 {
		c.set("k", "", "v")
		c.next()
	}
	last := first.Sequence()
	if second := startServer(t, ServerOptions{}); second.Sequence() <= last {
		t.Errorf("a new run begins at %d, the old one ended at %d", second.Sequence(), last)
	}
}

// The server sends HUGZ at a regular interval, with the current sequence.
func TestServerSendsHeartbeats(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{HeartbeatInterval: 5 * time.Millisecond})
	c := newPlainClient(t, s, "HUGZ")
	for range 5 {
		if m := c.any(); m.key != "HUGZ" || m.seq != s.Sequence() || len(m.uuid) != 0 || m.properties != "" || m.value != "" {
			t.Fatalf("%+v", m)
		}
	}
}

// An empty value deletes the key.
func TestServerDeletesOnEmptyValue(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := newPlainClient(t, s)
	c.set("k", "", "v")
	c.next()
	if v, ok := s.Get("k"); !ok || string(v) != "v" {
		t.Fatalf("%q %v", v, ok)
	}
	c.set("k", "", "")
	if m := c.next(); m.key != "k" || m.value != "" {
		t.Fatalf("%+v", m)
	}
	if _, ok := s.Get("k"); ok || s.Len() != 0 {
		t.Error("the key is still there")
	}
	if all, _ := c.snapshot(""); len(all) != 0 {
		t.Errorf("snapshot has %v", all)
	}
}

// The server accepts the property ttl. When it ends, the key is
// deleted and an empty KVPUB published.
func TestServerExpiresKeys(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := newPlainClient(t, s)
	c.set("kept", "ttl=2\n", "v")
	c.set("kept", "", "w") // set again without a TTL: stays
	c.set("long", "ttl=3600\n", "v")
	c.set("never", "ttl=0\n", "v")
	c.set("short", "ttl=0.05\n", "v")
	first := c.next()
	for range 4 {
		c.next()
	}
	m := c.next()
	if m.key != "short" || m.value != "" || m.seq != first.seq+5 {
		t.Fatalf("after the TTL: %+v", m)
	}
	// The time to live that "kept" had before would have ended by now, before this one
	// does.
	c.set("later", "ttl=2.1\n", "v")
	c.next()
	if m := c.next(); m.key != "later" || m.value != "" {
		t.Fatalf("%+v", m)
	}
	for _, key := range []string{"long", "never", "kept"} {
		if _, ok := s.Get(key); !ok {
			t.Errorf("%s is gone", key)
		}
	}
	if n := s.Stats().Expired; n != 2 {
		t.Errorf("%d keys expired, want 2", n)
	}
}

// Malformed updates are refused and counted, each by its reason, and the
// client's next update is served.
func TestBadUpdates(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{MaxValueSize: 1000})
	c := newPlainClient(t, s)
	seq, uuid := make([]byte, 8), make([]byte, 16)
	bad := map[Reason][][][]byte{
		ReasonFrameCount: {
			{[]byte("k")}, {[]byte("k"), seq, uuid, nil}, {[]byte("k"), seq, uuid, nil, []byte("v"), nil},
		},
		ReasonKey: {
			{nil, seq, uuid, nil, []byte("v")},
			{[]byte(strings.Repeat("k", 256)), seq, uuid, nil, []byte("v")},
			{[]byte("a\x00b"), seq, uuid, nil, []byte("v")},
		},
		ReasonReservedKey: {
			{[]byte("KTHXBAI"), seq, uuid, nil, []byte("v")},
			{[]byte("HUGZ"), seq, uuid, nil, []byte("v")},
			{[]byte("HUGZ/more"), seq, uuid, nil, []byte("v")},
		},
		ReasonSequence: {
			{[]byte("k"), seq[:7], uuid, nil, []byte("v")}, {[]byte("k"), nil, uuid, nil, []byte("v")},
		},
		ReasonUUID: {
			{[]byte("k"), seq, uuid[:15], nil, []byte("v")}, {[]byte("k"), seq, make([]byte, 300), nil, []byte("v")},
		},
		ReasonProperties: {
			{[]byte("k"), seq, uuid, []byte("no line end"), []byte("v")}, {[]byte("k"), seq, uuid, []byte("noequals\n"), []byte("v")},
		},
		ReasonTTL: {
			{[]byte("k"), seq, uuid, []byte("ttl=soon\n"), []byte("v")}, {[]byte("k"), seq, uuid, []byte("ttl=-1\n"), []byte("v")},
			{[]byte("k"), seq, uuid, []byte("ttl=1e300\n"), []byte("v")}, {[]byte("k"), seq, uuid, []byte("ttl=NaN\n"), []byte("v")},
		},
		ReasonValueTooLarge: {
			{[]byte("k"), seq, uuid, nil, make([]byte, 1001)},
		},
	}
	for _, messages := range bad {
		for _, frames := range messages {
			c.send(frames...)
		}
	}
	before := s.Sequence()
	c.set("k", "", "good")
	if m := c.next(); m.key != "k" || m.value != "good" || m.seq != before+1 {
		t.Fatalf("%+v", m)
	}
	got := s.Stats().Refused
	for reason, messages := range bad {
		if got[reason] != uint64(len(messages)) {
			t.Errorf("%v: %d counted, %d sent", reason, got[reason], len(messages))
		}
	}
}

// A port in use is a typed error that names the endpoint, and nothing stays
// bound.
func TestListenInUse(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	p := portsOf(s.Endpoints())
	for _, port := range []int{p[0], p[0] - 1, p[0] - 2} {
		other, err := NewServer(ServerOptions{Port: port, Logger: quiet()})
		must(t, err)
		err = other.Listen(testContext(t))
		var listen *ListenError
		if !errors.As(err, &listen) || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("port %d: %v", port, err)
		}
		must(t, other.Close())
	}
}

func TestServeEndsWithContext(t *testing.T) {
	t.Parallel()
	s, err := NewServer(ServerOptions{Logger: quiet()})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	<-s.Ready()
	cancel()
	must(t, <-served)
	if err := s.Serve(context.Background()); !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("serving again: %v", err)
	}
	must(t, s.Close())
}

func TestServerOptionErrors(t *testing.T) {
	t.Parallel()
	_, err := NewServer(ServerOptions{Port: 65534, MaxValueSize: -1, HeartbeatInterval: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{"Port", "MaxValueSize", "HeartbeatInterval"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}
