package chp

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Reading methods of a server agree with each other and with those of a client.
func TestServerReads(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	base := s.Sequence()
	var b Batch
	for i := range 100 {
		b.Set(fmt.Sprintf("/%c/%02d", "ab"[i%2], i), fmt.Appendf(nil, "%d", i))
	}
	b.Set("/ttl", []byte("x"), WithTTL(time.Hour))
	must(t, s.Apply(ctx, &b))
	must(t, s.Delete(ctx, "/b/99"))
	c := startClient(t, s, ClientOptions{})
	waitEqual(t, s, c)

	e, p := s.Lookup("/a/42")
	if p != PresenceFound || string(e.Key) != "/a/42" || string(e.Value) != "42" || e.Sequence != base+43 || e.TTL != 0 {
		t.Errorf("Lookup: %+v, %v", e, p)
	}
	if e, p := s.Lookup("/ttl"); p != PresenceFound || e.TTL > time.Hour || e.TTL < time.Hour-time.Minute {
		t.Errorf("Lookup: %+v, %v", e, p)
	}
	if _, p := s.Lookup("/b/99"); p != PresenceAbsent {
		t.Errorf("Lookup of a deleted key: %v", p)
	}
	ranged := map[string]string{}
	s.Range(func(key, value []byte) bool { ranged[string(key)] = string(value); return true })
	all := map[string]string{}
	for e := range s.All() {
		all[string(e.Key)] = string(e.Value)
		must(t, s.Set(ctx, "/during", []byte("the loop"))) // does not show
	}
	if len(ranged) != 100 || len(all) != 100 || ranged["/a/42"] != "42" || all["/b/43"] != "43" {
		t.Errorf("%d and %d keys", len(ranged), len(all))
	}
	n := 0
	for e := range s.Prefix("/a/4") {
		if n++; string(e.Key[:4]) != "/a/4" {
			t.Errorf("Prefix yields %s", e.Key)
		}
	}
	var sorted, theirs []string
	for e := range s.Sorted("/b/") {
		sorted = append(sorted, string(e.Key))
	}
	for e := range c.Sorted("/b/") {
		theirs = append(theirs, string(e.Key))
	}
	if n != 5 || len(sorted) != 49 || !slices.IsSorted(sorted) || !slices.Equal(sorted, theirs) {
		t.Errorf("%d with the prefix, sorted %v, at the client %v", n, sorted, theirs)
	}
	for range s.Sorted("") {
		break
	}
}
