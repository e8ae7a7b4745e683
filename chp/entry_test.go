package chp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// timeLeft returns the remaining time to live of a key, and whether the key exists.
func timeLeft(c *Client, key string) (time.Duration, bool) {
	e, p := c.Lookup(key)
	return e.TTL, p == PresenceFound
}

// Lookup returns value, sequence and time to live, and tells why there is no entry.
func TestLookupTellsPresence(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{Subtrees: []string{"/a/", "/b/one"}})
	seq, err := c.SetSync(ctx, "/a/1", []byte("value"), WithTTL(time.Hour))
	must(t, err)
	must(t, c.Set(ctx, "/c/1", []byte("value")))
	must(t, c.Flush(ctx))

	e, p := c.Lookup("/a/1")
	if p != PresenceFound || string(e.Key) != "/a/1" || string(e.Value) != "value" || e.Sequence != seq {
		t.Errorf("Lookup returns %q = %q, sequence %d, %v; want sequence %d", e.Key, e.Value, e.Sequence, p, seq)
	}
	wantLeft(t, "/a/1", e.TTL, time.Hour)
	again, err := c.SetSync(ctx, "/a/1", []byte("other"))
	must(t, err)
	if string(e.Key) != "/a/1" || string(e.Value) != "value" {
		t.Errorf("the entry has changed to %q = %q", e.Key, e.Value)
	}
	if e, _ := c.Lookup("/a/1"); e.TTL != 0 || e.Sequence != again {
		t.Errorf("after an update without a time to live: %v left, sequence %d", e.TTL, e.Sequence)
	}
	if _ = append(e.Key, "more"...); string(e.Value) != "value" {
		t.Errorf("appending to the key changes the value to %q", e.Value)
	}
	for key, want := range map[string]Presence{
		"/a/2": PresenceAbsent, "/b/one": PresenceAbsent,
		"/b/two": PresenceOutside, "/c/1": PresenceOutside, "": PresenceOutside,
	} {
		if e, p := c.Lookup(key); p != want || e.Value != nil {
			t.Errorf("Lookup(%q) = %q, %v, want %v", key, e.Value, p, want)
		}
	}

	early := idleClient(t, ClientOptions{Subtrees: []string{"/a/"}})
	for key, want := range map[string]Presence{"/a/1": PresenceUnsynced, "/c/1": PresenceOutside} {
		if _, p := early.Lookup(key); p != want {
			t.Errorf("before the first snapshot Lookup(%q) = %v, want %v", key, p, want)
		}
	}
	for range early.All() {
		t.Error("a client without a state has an entry")
	}
	for range early.Sorted("") {
		t.Error("a client without a state has an entry")
	}
}

func TestIteratorsAgree(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	var want []string
	for i := range 300 {
		key := fmt.Sprintf("/n/%d", i*7919%300)
		must(t, c.Set(ctx, key, []byte("v"+key)))
		want = append(want, key)
	}
	must(t, c.Set(ctx, "/m", []byte("v/m"), WithTTL(time.Hour)))
	must(t, c.Flush(ctx))
	slices.Sort(want)

	for _, test := range []struct {
		prefix string
		want   []string
	}{
		{"", append([]string{"/m"}, want...)},
		{"/n/", want},
		{"/n/29", []string{"/n/29", "/n/290", "/n/291", "/n/292", "/n/293", "/n/294", "/n/295", "/n/296", "/n/297", "/n/298", "/n/299"}},
		{"/o", nil},
		{"/n/2990", nil},
	} {
		var sorted, any []string
		for e := range c.Sorted(test.prefix) {
			if string(e.Value) != "v"+string(e.Key) || e.Sequence == 0 || (e.TTL > 0) != (string(e.Key) == "/m") {
				t.Errorf("%q = %q, sequence %d, %v left", e.Key, e.Value, e.Sequence, e.TTL)
			}
			sorted = append(sorted, string(e.Key))
		}
		for e := range c.Prefix(test.prefix) {
			any = append(any, string(e.Key))
		}
		if !slices.Equal(sorted, test.want) {
			t.Errorf("Sorted(%q) has %q", test.prefix, sorted)
		}
		slices.Sort(any)
		if !slices.Equal(any, test.want) {
			t.Errorf("Prefix(%q) has %q", test.prefix, any)
		}
	}
	n := 0
	for range c.All() {
		if n++; n == 3 {
			break
		}
	}
	for range c.Sorted("/n/") {
		if n++; n == 6 {
			break
		}
	}
	if n != 6 {
		t.Errorf("after break: %d", n)
	}
}

// Lookup allocates once, for the copy of key and value.
func TestLookupAllocatesOnce(t *testing.T) {
	c := idleClient(t, ClientOptions{})
	begin(t, c, 0, pub{"/some/key", 1, "some value"})
	if n := testenv.Allocs(0, 1000, func() {
		if _, p := c.Lookup("/some/key"); p != PresenceFound {
			t.Fatal(p)
		}
		if _, p := c.Lookup("/other/key"); p != PresenceAbsent {
			t.Fatal(p)
		}
	}); n != 1 && !testenv.RaceDetector {
		t.Errorf("%v allocations, want 1", n)
	}
}

// A loop sees the state at its beginning, and its body may change the map and wait for
// the change.
func TestIteratorsSeeOneState(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	for i := range 20 {
		must(t, c.Set(ctx, fmt.Sprintf("/%02d", i), []byte("before")))
	}
	must(t, c.Flush(ctx))
	seen := 0
	for e := range c.Sorted("/") {
		if seen++; string(e.Value) != "before" {
			t.Errorf("%s = %q", e.Key, e.Value)
		}
		next := fmt.Sprintf("/%02d", seen%20)
		if _, err := c.SetSync(ctx, next, []byte("after")); err != nil {
			t.Error(err)
		}
		if _, err := c.SetSync(ctx, "/new"+next, []byte(strings.Repeat("x", 10_000))); err != nil {
			t.Error(err)
		}
	}
	if seen != 20 {
		t.Errorf("%d entries, want 20", seen)
	}
	for e := range c.Prefix("/0") {
		if string(e.Value) != "after" {
			t.Errorf("%s = %q", e.Key, e.Value)
		}
	}
}
