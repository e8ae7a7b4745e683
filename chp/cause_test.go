package chp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// nextEvent returns a copy of a watch's next event, its bytes too.
func nextEvent(t *testing.T, w *Watch) Event {
	t.Helper()
	e, err := w.Next(testContext(t))
	must(t, err)
	e.Key, e.Value, e.Properties = slices.Clone(e.Key), slices.Clone(e.Value), slices.Clone(e.Properties)
	return e
}

// wantCause fetches an event and checks its fields.
func wantCause(t *testing.T, w *Watch, op Op, key string, cause Cause) Event {
	t.Helper()
	e := nextEvent(t, w)
	if e.Op != op || string(e.Key) != key || e.Cause != cause {
		t.Errorf("%v of %q because of %v; want %v of %q because of %v", e.Op, e.Key, e.Cause, op, key, cause)
	}
	return e
}

// wantLeft checks that a time to live has run, and not for long.
func wantLeft(t *testing.T, what string, left, given time.Duration) {
	t.Helper()
	if left <= 0 || left > given || left < given-hang {
		t.Errorf("%s has %v left of %v", what, left, given)
	}
}

// A watch tells apart an update, a deletion, an expiry and the differences that a
// new snapshot brings, and how long keys have left to live.
func TestCausesOfEvents(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	must(t, c.Set(ctx, "/old", []byte("v"), WithTTL(time.Hour)))
	must(t, c.Flush(ctx))
	w := openWatch(t, c)
	e := wantCause(t, w, OpSet, "/old", CauseSet)
	wantLeft(t, "what is there", e.TTL, time.Hour)
	if e := wantCause(t, w, OpSynced, "", 0); e.Cause.String() != "none" {
		t.Errorf("the cause of synced prints as %v", e.Cause)
	}

	must(t, c.Set(ctx, "/plain", []byte("v")))
	must(t, c.Delete(ctx, "/plain"))
	must(t, c.Set(ctx, "/brief", []byte("v"), WithTTL(20*time.Millisecond)))
	if e := wantCause(t, w, OpSet, "/plain", CauseSet); e.TTL != 0 {
		t.Errorf("a key without a limit has %v left", e.TTL)
	}
	wantCause(t, w, OpDelete, "/plain", CauseDeleted)
	e = wantCause(t, w, OpSet, "/brief", CauseSet)
	wantLeft(t, "an update", e.TTL, 20*time.Millisecond)
	wantCause(t, w, OpDelete, "/brief", CauseExpired)
}

// Changes by a new snapshot have the cause resync.
func TestCauseResync(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(10, pub{"gone", 1, "x"}, pub{"same", 2, "x"}, pub{"other", 3, "x"})
	must(t, c.WaitActive(testContext(t)))
	w := openWatch(t, c)
	for nextEvent(t, w).Op != OpSynced {
	}
	s.kvpub(pub{"k", 20, "after a gap"})
	s.answer(30, pub{"same", 2, "x"}, pub{"other", 25, "y"})
	wantCause(t, w, OpSet, "other", CauseResync)
	wantCause(t, w, OpDelete, "gone", CauseResync)
	s.kvpub(pub{"same", 31, "z"})
	wantCause(t, w, OpSet, "same", CauseSet)
}

// Expiries at the guide's servers are recognised by their absolute ttl, in
// milliseconds or seconds.
func TestCausesAtForeignServers(t *testing.T) {
	t.Parallel()
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			p := cloneServer(t, "--style", style)
			c := cloneClient(t, ClientOptions{}, p)
			w := openWatch(t, c)
			wantCause(t, w, OpSynced, "", 0)
			p.Call(interop.Op{"op": "set", "key": []byte("k"), "value": []byte("v"), "properties": []byte("ttl=1\n")}, nil)
			e := wantCause(t, w, OpSet, "k", CauseSet)
			wantLeft(t, "k", e.TTL, time.Second)
			if ttl, ok := timeLeft(c, "k"); ok {
				wantLeft(t, "k", ttl, time.Second)
			}
			wantCause(t, w, OpDelete, "k", CauseExpired)
			p.Call(interop.Op{"op": "set", "key": []byte("k"), "value": []byte("v"), "properties": []byte("ttl=100\n")}, nil)
			p.Call(interop.Op{"op": "set", "key": []byte("k"), "properties": []byte("ttl=100\n")}, nil)
			wantCause(t, w, OpSet, "k", CauseSet)
			wantCause(t, w, OpDelete, "k", CauseDeleted)
		})
	}
}

// A replica knows how much time a key has left, also when the key was set before
// the replica joined.
func TestRemainingTTL(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	early := followServer(t, s.Endpoints().Snapshot)
	long := fmt.Sprint(make([]byte, 200)) // properties that need a long frame
	must(t, early.Set(ctx, "/a", []byte("v"), WithTTL(time.Minute)))
	must(t, early.Set(ctx, "/b", []byte("v"), WithProperty("p", long), WithTTL(time.Minute), WithProperty("q", "1")))
	must(t, early.Set(ctx, "/none", []byte("v")))
	must(t, early.Set(ctx, "/again", []byte("v"), WithTTL(time.Minute)))
	must(t, early.Set(ctx, "/again", []byte("v")))
	must(t, early.Flush(ctx))
	const passed = 50 * time.Millisecond
	eventually(t, "some of the minute is over", func() bool {
		ttl, _ := timeLeft(early, "/b")
		return ttl <= time.Minute-passed
	})
	all, one := followServer(t, s.Endpoints().Snapshot), followServer(t, s.Endpoints().Snapshot, "/b")
	for what, c := range map[string]*Client{"early": early, "all": all, "one": one} {
		for _, key := range []string{"/a", "/b"} {
			if what == "one" && key == "/a" {
				continue
			}
			ttl, ok := timeLeft(c, key)
			if !ok || ttl > time.Minute-passed+time.Millisecond {
				t.Errorf("%s: %s has %v left of a minute, %v passed", what, key, ttl, passed)
			}
			wantLeft(t, what+": "+key, ttl, time.Minute)
		}
	}
	for _, key := range []string{"/none", "/again"} {
		for _, c := range []*Client{early, all} {
			if ttl, ok := timeLeft(c, key); !ok || ttl != 0 {
				t.Errorf("%s, which has no limit, has %v left, %v", key, ttl, ok)
			}
		}
	}
	if _, ok := timeLeft(all, "/missing"); ok {
		t.Error("a key that is not there has a time to live")
	}
	limits := 0
	for e := range all.All() {
		if e.TTL > 0 {
			limits++
		}
	}
	if limits != 2 {
		t.Errorf("%d entries have a limit, want 2", limits)
	}
	// The other properties come as they were.
	w := openWatch(t, one)
	if got, _ := kvmsg.Property(nextEvent(t, w).Properties, "q"); string(got) != "1" {
		t.Errorf("property q is %q", got)
	}
}

// The table of deadlines holds no more than the keys that live.
func TestDeadlinesAreDropped(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	for i := range 1000 {
		must(t, c.Set(ctx, fmt.Sprintf("/%d", i), []byte("v"), WithTTL(time.Millisecond)))
	}
	must(t, c.Set(ctx, "/stays", []byte("v"), WithTTL(time.Hour)))
	must(t, c.Flush(ctx))
	eventually(t, "all but one expire", func() bool { return c.Len() == 1 })
	for what, d := range map[string]*timer.Deadlines{"server": &s.live.Now().Deadlines, "client": &c.live.Now().Deadlines} {
		if n := d.Len(); n != 1 {
			t.Errorf("the %s remembers %d deadlines, want 1", what, n)
		}
	}
}

// followServer makes a client of a server and waits until it is ACTIVE.
func followServer(t *testing.T, server string, subtrees ...string) *Client {
	t.Helper()
	c, err := NewClient(ClientOptions{Servers: []string{server}, Subtrees: subtrees, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	must(t, c.WaitActive(testContext(t)))
	return c
}

// No client can make its deletion look like an expiry, neither at a server that accepts
// it, nor at one that keeps it for a takeover: the rest of the deletion counts.
func TestClientsCannotForgeAnExpiry(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	w := openWatch(t, c)
	wantCause(t, w, OpSynced, "", 0)
	of := newPlainClient(t, s)
	for _, uuid := range []string{"", "0123456789abcdef"} {
		of.set("/k", "", "v")
		of.send([]byte("/k"), make([]byte, 8), []byte(uuid), []byte("cause=expired\nby=alice\n"), nil)
		wantCause(t, w, OpSet, "/k", CauseSet)
		e := wantCause(t, w, OpDelete, "/k", CauseDeleted)
		if string(e.Properties) != "by=alice\n" {
			t.Errorf("the deletion has properties %q", e.Properties)
		}
	}
}

// What an update said besides key and value is in its event and in its entry, at
// clients, at servers, after Preload, and in a copy made with WithProperties.
func TestPropertiesAreInEventsAndEntries(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	w := openWatch(t, c)
	wantCause(t, w, OpSynced, "", 0)
	must(t, c.Set(ctx, "/k", []byte("v"), WithProperty("by", "alice"), WithTTL(time.Hour), WithProperty("why", "a=b")))
	must(t, c.Flush(ctx))
	e := wantCause(t, w, OpSet, "/k", CauseSet)
	want := "by=alice\nttl=3600\nwhy=a=b\n"
	check := func(what string, p Properties) {
		t.Helper()
		if by, ok := p.Get("by"); !ok || string(by) != "alice" || string(p) != want {
			t.Errorf("%s has properties %q", what, p)
		}
	}
	check("the event", e.Properties)
	entry, _ := c.Lookup("/k")
	check("the client's entry", entry.Properties)
	if entry, _ = s.Lookup("/k"); string(entry.Key) != "/k" || string(entry.Value) != "v" {
		t.Errorf("the server's entry is %q, %q", entry.Key, entry.Value)
	}
	check("the server's entry", entry.Properties)
	for e := range c.All() {
		check("an entry of All", e.Properties)
	}

	want = "by=alice\nwhy=a=b\nttl=60\n"
	must(t, c.Set(ctx, "/copy", []byte("v"), WithProperties(entry.Properties), WithTTL(time.Minute)))
	must(t, c.Flush(ctx))
	entry, _ = s.Lookup("/copy")
	check("the copy", entry.Properties)
	entry.TTL = time.Minute
	loaded := startServer(t, ServerOptions{Preload: entries(entry)})
	entry, _ = loaded.Lookup("/copy")
	check("the loaded entry", entry.Properties)

	var lines []string
	for name, value := range Properties("x=1\nmalformed\n=\nx=\ny=2").All() {
		lines = append(lines, string(name)+" "+string(value))
	}
	if got := fmt.Sprintf("%q", lines); got != `["x 1" "x " "y 2"]` {
		t.Errorf("the properties are %s", got)
	}
}
