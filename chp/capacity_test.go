package chp

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// A full map refuses only updates that would make it larger: updates that do not grow a
// key and deletions pass, and after those there is room again.
func TestMapFull(t *testing.T) {
	t.Parallel()
	const bound = 100_000
	s := startServer(t, ServerOptions{MaxMapBytes: bound})
	c := newPlainClient(t, s)
	value := strings.Repeat("v", 1000)
	const n = 200
	for i := range n {
		c.set(fmt.Sprint("/key/", i), "", value)
	}
	c.set("/key/0", "", strings.Repeat("w", 1000)) // as large as before
	var last kv
	for last = c.next(); last.value[0] != 'w'; last = c.next() {
		if last.key == "/key/0" && last.value != value {
			t.Fatal(last.key)
		}
	}
	st := s.Stats()
	if st.MapBytes > bound || st.MapBytes < bound-2000 || st.Keys+int(st.Refused[ReasonMapFull]) != n {
		t.Errorf("%d bytes, bound %d; %d keys, %d refused", st.MapBytes, bound, st.Keys, st.Refused[ReasonMapFull])
	}
	c.set("/key/1", "", "") // deletes
	c.next()
	c.set("/new", "", "x")
	if m := c.next(); m.key != "/new" {
		t.Errorf("after a deletion comes %+v", m)
	}
}

// A preload that does not fit ends NewServer.
func TestPreloadBeyondTheBound(t *testing.T) {
	t.Parallel()
	preload := func(yield func(Entry, error) bool) {
		for i := range 100 {
			if !yield(Entry{Key: fmt.Append(nil, "/key/", i), Value: make([]byte, 1000)}, nil) {
				return
			}
		}
	}
	_, err := NewServer(ServerOptions{MaxMapBytes: 10_000, Preload: preload, Logger: quiet()})
	if err == nil || !strings.Contains(err.Error(), "map full") {
		t.Errorf("%v", err)
	}
}

// Beyond MaxClients a connection is closed at once, and those that are there stay.
func TestMaxClients(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{MaxClients: 2})
	c := newPlainClient(t, s)
	other, err := sockets.NewSub(sockets.Options{})
	must(t, err)
	defer other.Close()
	must(t, other.Connect(s.Endpoints().Publisher))
	must(t, other.Subscribe(""))
	must(t, other.WaitSubscribed(c.ctx))
	third, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoints().Publisher, "tcp://"))
	must(t, err)
	defer third.Close()
	must(t, third.SetReadDeadline(time.Now().Add(hang)))
	for b := make([]byte, 100); err == nil; {
		_, err = third.Read(b)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("one connection more was not closed")
	}
	c.set("k", "", "v")
	c.next()
}

// A writer goes on at its rate beside subscribers that do not read, each with topics
// of its own, and their queues together are bounded.
func TestStuckSubscribersWithTopicsOfTheirOwn(t *testing.T) {
	t.Parallel()
	const n, total = 20, 8 << 20
	s := startServer(t, ServerOptions{SubscriberMemory: total})
	writer := startClient(t, s, ClientOptions{Subtrees: []string{"/none/"}})
	ctx := testContext(t)
	must(t, writer.WaitActive(ctx))
	for i := range n {
		sub, err := sockets.NewSub(sockets.Options{RecvHWM: 1, RecvHWMBytes: 1, RecvBuffer: 4096})
		must(t, err)
		t.Cleanup(func() { sub.Close() })
		must(t, sub.Subscribe("/a/"))
		must(t, sub.Subscribe(fmt.Sprintf("/own/%d/", i)))
		must(t, sub.Connect(s.Endpoints().Publisher))
		must(t, sub.WaitSubscribed(ctx))
	}
	value := bytes.Repeat([]byte("v"), 1000)
	most := 0
	updates := testenv.Rounds(40_000)
	for i := range updates {
		must(t, writer.Set(ctx, fmt.Sprint("/a/", i%1000), value))
		if i%500 == 0 {
			sum := 0
			for _, p := range s.Stats().Subscribers {
				sum += p.QueuedBytes
			}
			most = max(most, sum)
		}
	}
	if most > total*5/4 {
		t.Errorf("%d bytes were queued, bound %d", most, total)
	}
	eventually(t, "all updates are taken", func() bool { return s.Stats().Updates == uint64(updates) })
}
