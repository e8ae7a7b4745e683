package chp

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermap/internal/loopback"
)

// The tests of this file run clients against our own server.

func TestClientWithServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	one := startClient(t, s, ClientOptions{})
	two := startClient(t, s, ClientOptions{})
	w := openWatch(t, two)
	first, err := one.SetSync(ctx, "/a/1", []byte("x"), WithProperty("colour", "red"))
	must(t, err)
	second, err := one.SetSync(ctx, "/a/1", []byte("y"))
	must(t, err)
	third, err := one.DeleteSync(ctx, "/a/1")
	must(t, err)
	if second != first+1 || third != first+2 || one.Sequence() != third || s.Sequence() != third {
		t.Errorf("sequences %d, %d, %d; client at %d, server at %d", first, second, third, one.Sequence(), s.Sequence())
	}
	must(t, one.Set(ctx, "/a/2", []byte("brief"), WithTTL(50*time.Millisecond)))
	must(t, one.Set(ctx, "/a/3", []byte("z")))
	must(t, one.Flush(ctx))
	if v, ok := one.Get("/a/3"); !ok || string(v) != "z" {
		t.Errorf("after Flush /a/3 = %q, %v", v, ok)
	}
	// The watch began before, while or after the first update: its events add up to the
	// same map in any case.
	seen := map[string]string{}
	for last := false; !last; {
		e, err := w.Next(ctx)
		must(t, err)
		if e.Op == OpDelete {
			delete(seen, string(e.Key))
			last = string(e.Key) == "/a/2"
		} else if e.Op == OpSet {
			seen[string(e.Key)] = string(e.Value)
		}
	}
	if want := map[string]string{"/a/3": "z"}; !maps.Equal(seen, want) || !maps.Equal(have(two), want) {
		t.Errorf("the watch has told of %v, the client has %v", seen, have(two))
	}
}

// Overlapping subtrees and single keys, of a server of ours.
func TestClientSubtreesWithServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	all := startClient(t, s, ClientOptions{})
	keys := []string{"/a/1", "/a/b/1", "/a/b/2", "/a/bc", "/b/1", "/b/11", "/c/1", "plain"}
	for _, key := range keys {
		must(t, all.Set(ctx, key, []byte("before")))
	}
	must(t, all.Flush(ctx))
	tests := []struct{ subtrees, want []string }{
		{[]string{"/a/b/", "/a/"}, []string{"/a/1", "/a/b/1", "/a/b/2", "/a/bc"}},
		{[]string{"/b/1", "plain", "/a/b/2", "nothing"}, []string{"/a/b/2", "/b/1", "plain"}},
		{[]string{"/c/", "/b/", "/a/bc"}, []string{"/a/bc", "/b/1", "/b/11", "/c/1"}},
	}
	var clients []*Client
	for _, test := range tests {
		c := startClient(t, s, ClientOptions{Subtrees: test.subtrees})
		must(t, c.WaitActive(ctx))
		clients = append(clients, c)
	}
	for _, after := range []string{"before", "after"} {
		for i, test := range tests {
			want := map[string]string{}
			for _, key := range test.want {
				want[key] = after
			}
			eventually(t, fmt.Sprintf("%q is %q", test.subtrees, after), func() bool { return maps.Equal(have(clients[i]), want) })
		}
		for _, key := range keys {
			must(t, all.Set(ctx, key, []byte("after")))
		}
	}
	for i, test := range tests {
		for _, key := range test.want {
			if _, err := clients[i].SetSync(ctx, key, []byte("own")); err != nil {
				t.Errorf("SetSync of %s with %q: %v", key, test.subtrees, err)
			}
		}
	}
}

// Many keys one by one: as many requests, two under way at a time.
func TestClientManyKeysWithServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	all := startClient(t, s, ClientOptions{})
	var subtrees []string
	for i := range 300 {
		must(t, all.Set(ctx, "/k/"+strconv.Itoa(i), []byte("v")))
		if i%3 == 0 {
			subtrees = append(subtrees, "/k/"+strconv.Itoa(i))
		}
	}
	must(t, all.Flush(ctx))
	c := startClient(t, s, ClientOptions{Subtrees: subtrees})
	must(t, c.WaitActive(ctx))
	if c.Len() != len(subtrees) {
		t.Errorf("%d keys, want %d", c.Len(), len(subtrees))
	}
}

// Two servers of ours with different content, of which one ends and starts
// again: the client follows the one that is there, and has its state and no other.
func TestClientFailsOverBetweenServers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	host := loopback.Own()
	serve := func(port int, keys ...string) (*Server, func()) {
		s, err := NewServer(ServerOptions{Host: host, Port: port, Logger: quiet(), HeartbeatInterval: 20 * time.Millisecond})
		must(t, err)
		must(t, s.Listen(ctx))
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx) }()
		<-s.Ready()
		stop := sync.OnceFunc(func() {
			must(t, s.Close())
			must(t, <-ended)
		})
		t.Cleanup(stop)
		c := startClient(t, s, ClientOptions{})
		for _, key := range keys {
			_, err := c.SetSync(ctx, key, []byte(strconv.Itoa(port)))
			must(t, err)
		}
		must(t, c.Close())
		return s, stop
	}
	one, stopOne := serve(0, "a", "b")
	two, stopTwo := serve(0, "b", "c")
	c, err := NewClient(ClientOptions{
		Servers:          []string{one.Endpoints().Snapshot, two.Endpoints().Snapshot},
		HeartbeatTimeout: hang, SyncTimeout: hang, // so that none is left for being slow
	})
	must(t, err)
	defer c.Close()
	follows := func(s *Server, want ...string) {
		t.Helper()
		eventually(t, "the client follows "+s.Endpoints().Snapshot, func() bool {
			return c.State() == StateActive && c.Server() == s.Endpoints().Snapshot
		})
		keys := slices.Sorted(maps.Keys(have(c)))
		if !slices.Equal(keys, want) {
			t.Errorf("the client has %q, want %q", keys, want)
		}
		key := "own " + strconv.FormatInt(s.Sequence(), 36)
		if _, err := c.SetSync(ctx, key, []byte("v")); err != nil {
			t.Error(err)
		}
		if _, ok := s.Get(key); !ok {
			t.Error("the update went elsewhere")
		}
		_, err := c.DeleteSync(ctx, key)
		must(t, err)
	}
	follows(one, "a", "b")
	stopOne()
	follows(two, "b", "c")
	one, _ = serve(portOf(one.Endpoints().Snapshot), "d")
	stopTwo()
	follows(one, "d")
	if n := c.Stats().Syncs; n != 3 {
		t.Errorf("%d snapshots, want 3", n)
	}
}

// Several goroutines of a client write the same keys: every replica has the value of the
// last update to come back.
func TestClientConcurrentUse(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	one, two := startClient(t, s, ClientOptions{}), startClient(t, s, ClientOptions{})
	var writers sync.WaitGroup
	for id := range 8 {
		writers.Go(func() {
			c := []*Client{one, two}[id%2]
			last := int64(0)
			for i := range 300 {
				key := fmt.Sprint("/k/", i%7)
				value := fmt.Appendf(nil, "%d.%d", id, i)
				if i%10 != 0 {
					if err := c.Set(ctx, key, value); err != nil {
						t.Error(err)
					}
					continue
				}
				seq, err := c.SetSync(ctx, key, value)
				if err != nil || seq <= last {
					t.Errorf("SetSync: %d after %d, %v", seq, last, err)
				}
				last = seq
				if c.Sequence() < seq {
					t.Errorf("the client is at %d after SetSync returned %d", c.Sequence(), seq)
				}
				c.Range(func(key, value []byte) bool { return len(value) > 0 })
			}
			if err := c.Flush(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	waitEqual(t, s, one)
	waitEqual(t, s, two)
}
