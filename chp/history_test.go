package chp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// versionTexts are versions without their times, which are checked: they increase, up to now.
func versionTexts(t *testing.T, all []Version) (texts []string) {
	t.Helper()
	for i, v := range all {
		if v.Time.IsZero() || v.Time.After(time.Now()) || i > 0 && (v.Time.Before(all[i-1].Time.Add(-time.Minute)) || v.Sequence <= all[i-1].Sequence) {
			t.Errorf("version %d, of sequence %d, is of %v", i, v.Sequence, v.Time)
		}
		texts = append(texts, fmt.Sprintf("%v %v %q %q", v.Op, v.Cause, v.Value, v.Properties.User()))
	}
	return texts
}

func wantVersions(t *testing.T, all []Version, want ...string) {
	t.Helper()
	if got := versionTexts(t, all); !slices.Equal(got, want) {
		t.Errorf("versions %q\nwant     %q", got, want)
	}
}

func versionsAt(t *testing.T, c *Client, key string) []Version {
	t.Helper()
	all, err := c.History(testContext(t), key)
	must(t, err)
	return all
}

// A server keeps the last versions of each key, deletions and expiries included, and a client
// gets them: in order, as the watches saw them, and the last one is what the key is now.
func TestHistory(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{History: 3, ExpiryGrace: -1})
	c := followServer(t, s.Endpoints().Snapshot)
	must(t, c.Set(ctx, "/k", []byte("1")))
	must(t, c.Set(ctx, "/k", []byte("2"), WithProperty("by", "alice")))
	must(t, c.Flush(ctx))
	wantVersions(t, versionsAt(t, c, "/k"), `set set "1" ""`, `set set "2" "by=alice\n"`)
	must(t, c.Delete(ctx, "/k"))
	must(t, c.Set(ctx, "/k", []byte("brief"), WithTTL(20*time.Millisecond)))
	must(t, c.Flush(ctx))
	eventually(t, "the key expires", func() bool { _, ok := c.Get("/k"); return !ok })
	all := versionsAt(t, c, "/k")
	wantVersions(t, all, `delete deleted "" ""`, `set set "brief" ""`, `delete expired "" "cause=expired\n"`)
	if ttl := kvmsg.TTLOf(all[1].Properties); ttl != 20*time.Millisecond {
		t.Errorf("it had %v to live", ttl)
	}
	must(t, s.Set(ctx, "/k", []byte("by the server")))
	seq, err := c.SetSync(ctx, "/k", []byte("last"))
	must(t, err)
	all = versionsAt(t, c, "/k")
	wantVersions(t, all, `delete expired "" "cause=expired\n"`, `set set "by the server" ""`, `set set "last" ""`)
	if all[2].Sequence != seq {
		t.Errorf("the last version is %d, the update was %d", all[2].Sequence, seq)
	}
	local, err := s.History("/k")
	must(t, err)
	if !slices.Equal(versionTexts(t, local), versionTexts(t, all)) {
		t.Errorf("the server itself says %q", versionTexts(t, local))
	}
	if all := versionsAt(t, c, "/never"); all != nil {
		t.Errorf("a key that never was has %q", versionTexts(t, all))
	}
	other := followServer(t, s.Endpoints().Snapshot, "/elsewhere/")
	wantVersions(t, versionsAt(t, other, "/k"), versionTexts(t, all)...)
	for _, key := range []string{"", "KTHXBAI", strings.Repeat("k", 256)} {
		if _, err := c.History(ctx, key); !errors.As(err, new(*MessageError)) {
			t.Errorf("of %.10q: %v", key, err)
		}
	}
}

// A server that keeps no history, of this package or another one, is told at once by a typed
// error.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{History: 1})
	plain := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, plain)
	plain.answer(10, pub{"k", 1, "x"})
	for name, c := range map[string]*Client{"without": followServer(t, s.Endpoints().Snapshot), "of another": c} {
		must(t, c.WaitActive(testContext(t)))
		if all, err := c.History(testContext(t), "/k"); !errors.Is(err, ErrNoHistory) || all != nil {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
	if _, err := s.History("/k"); !errors.Is(err, ErrNoHistory) {
		t.Errorf("%v", err)
	}
}

// The versions of all keys have a bound in bytes; the newest version of a key is there even if it
// is dropped, without a time.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{History: 5, HistoryBytes: 20_000})
	c := followServer(t, s.Endpoints().Snapshot)
	for i := range 3 {
		must(t, c.Set(ctx, "/old", fmt.Append(nil, i)))
	}
	for i := range 100 {
		must(t, c.Set(ctx, fmt.Sprint("/new/", i), make([]byte, 300)))
	}
	must(t, c.Flush(ctx))
	all := versionsAt(t, c, "/old")
	if len(all) != 1 || string(all[0].Value) != "2" || !all[0].Time.IsZero() {
		t.Errorf("%+v", all)
	}
	wantVersions(t, versionsAt(t, c, "/new/99"), fmt.Sprintf(`set set %q ""`, make([]byte, 300)))
	if n := s.Stats().History; n > 20_000 || n < 15_000 {
		t.Errorf("%d bytes", n)
	}
}

// A history that is larger than an answer comes in several.
func TestHistoryInPortions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{History: 12})
	c := followServer(t, s.Endpoints().Snapshot)
	for i := range 12 {
		must(t, c.Set(ctx, "/k", slices.Repeat([]byte{byte('a' + i)}, historyAnswer/3)))
	}
	must(t, c.Flush(ctx))
	all := versionsAt(t, c, "/k")
	for i, v := range all {
		if len(v.Value) != historyAnswer/3 || v.Value[0] != byte('a'+i) {
			t.Errorf("version %d has %d bytes of %q", i, len(v.Value), v.Value[0])
		}
	}
	if len(all) != 12 {
		t.Errorf("%d versions", len(all))
	}
}

// A restart brings the versions back from the log on disk, from a checkpoint and from what
// follows it, with their times.
func TestHistoryAfterRestart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	var want []Version
	for run := range 4 {
		s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir), Sync: commit.Always(), History: 6})
		c := startClient(t, s, ClientOptions{})
		if run > 0 {
			got := versionsAt(t, c, "/k")
			if !slices.Equal(versionTexts(t, got), versionTexts(t, want)) {
				t.Errorf("run %d begins with %q, want %q", run, versionTexts(t, got), versionTexts(t, want))
			}
			for i := range min(len(got), len(want)) {
				if off := got[i].Time.Sub(want[i].Time).Abs(); off > time.Minute || got[i].Sequence != want[i].Sequence {
					t.Errorf("run %d: version %d is %d of %v, was %d of %v", run, i, got[i].Sequence, got[i].Time, want[i].Sequence, want[i].Time)
				}
			}
		}
		must(t, c.Set(ctx, "/k", fmt.Append(nil, run), WithProperty("run", fmt.Sprint(run))))
		must(t, c.Flush(ctx))
		if run%2 == 0 {
			must(t, s.sequencer.Checkpoint(ctx))
		}
		must(t, c.Delete(ctx, "/k"))
		must(t, c.Flush(ctx))
		want = versionsAt(t, c, "/k")
		must(t, c.Close())
		stop()
	}
	if len(want) != 6 {
		t.Errorf("%d versions", len(want))
	}
	s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)}) // without a history it reads them, too
	defer stop()
	if _, err := s.History("/k"); !errors.Is(err, ErrNoHistory) {
		t.Errorf("%v", err)
	}
}

// The other server of a pair has the versions, those from before it began to follow too, and a
// failover keeps them.
func TestHistoryOfAPair(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	po.History, bo.History = 8, 8
	po.Stamp, bo.Stamp = true, true
	primary := startPairServer(t, po)
	c := pairClient(t, po, bo)
	for i := range 3 {
		must(t, c.Set(ctx, "/k", fmt.Append(nil, i)))
	}
	must(t, c.Delete(ctx, "/k"))
	must(t, c.Flush(ctx))
	backup := startPairServer(t, bo)
	eventually(t, "the backup follows", primary.inSync)
	_, err := c.SetSync(ctx, "/k", []byte("together"))
	must(t, err)
	before := versionsAt(t, c, "/k")
	primary.crash()
	_, err = c.SetSync(ctx, "/k", []byte("after"))
	must(t, err)
	if !backup.active() {
		t.Fatal("the backup is not active")
	}
	after := versionsAt(t, c, "/k")
	wantVersions(t, after, append(versionTexts(t, before), `set set "after" ""`)...)
	if len(before) != 5 {
		t.Errorf("%d versions", len(before))
	}
	for i, v := range before {
		if v.Sequence != after[i].Sequence || !v.Time.Equal(after[i].Time) {
			t.Errorf("version %d was %d of %v, is %d of %v", i, v.Sequence, v.Time, after[i].Sequence, after[i].Time)
		}
	}
}

// A question that is under way when the server is lost goes to the next one.
func TestHistoryOfTheNextServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	lost := newScripted(t, asOurs)
	must(t, lost.router.SetOptions(func(o *sockets.Options) { o.Metadata["X-CHP-History"] = "3" }))
	s := startServer(t, ServerOptions{History: 3})
	must(t, s.Set(ctx, "/k", []byte("v")))
	c, err := NewClient(ClientOptions{Servers: []string{lost.name(), s.Endpoints().Snapshot}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	lost.answer(10)
	must(t, c.WaitActive(ctx))
	type result struct {
		all []Version
		err error
	}
	done := make(chan result)
	go func() {
		all, err := c.History(ctx, "/k")
		done <- result{all, err}
	}()
	m, err := lost.router.Recv(ctx)
	must(t, err)
	if len(m) != 5 || string(m[1]) != "HISTORY?" || string(m[3]) != "/k" {
		t.Fatalf("the client asks %q", m)
	}
	lost.close()
	r := <-done
	must(t, r.err)
	wantVersions(t, r.all, `set set "v" ""`)
}

// Each update has the time and its authenticated author, if the server was told so, for all
// clients; and no client can say either.
func TestStamp(t *testing.T) {
	t.Parallel()
	serverCurve, clientCurve := curve()
	for name, with := range map[string]struct {
		server, client sockets.Security
		by             string
	}{
		"CURVE": {serverCurve, clientCurve, clientCurve.CurveSecretKey.Public().String()},
		"PLAIN": {
			sockets.Security{PlainServer: true, Authenticate: sockets.AllowUsers(map[string]string{"alice": "password"})},
			sockets.Security{PlainUsername: "alice", PlainPassword: "password"}, "alice",
		},
		"NULL": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			begun := time.Now().Add(-time.Minute) // between two readings of clocks a process can stand still
			s := startServer(t, ServerOptions{Security: with.server, Stamp: true, History: 9, ExpiryGrace: -1})
			open := func() *Client {
				c, err := NewClient(ClientOptions{Servers: []string{s.Endpoints().Snapshot}, Security: with.client, Logger: quiet()})
				must(t, err)
				t.Cleanup(func() { c.Close() })
				must(t, c.WaitActive(ctx))
				return c
			}
			c := open()
			w := openWatch(t, c)
			wantCause(t, w, OpSynced, "", 0)
			check := func(what string, p Properties, by, user string) {
				t.Helper()
				at, who, ok := p.Stamped()
				if !ok || at.Before(begun) || at.After(time.Now().Add(time.Minute)) || who != by || string(p.User()) != user {
					t.Errorf("%s: %q is of %v by %q, want by %q", what, p, at, who, by)
				}
			}
			must(t, c.Set(ctx, "/plain", []byte("v")))
			check("a set", wantCause(t, w, OpSet, "/plain", CauseSet).Properties, with.by, "")
			must(t, c.Set(ctx, "/props", []byte("v"), WithProperty("a", "b"), WithTTL(time.Hour)))
			e := wantCause(t, w, OpSet, "/props", CauseSet)
			check("a set with properties", e.Properties, with.by, "a=b\n")
			wantLeft(t, "a stamped key", e.TTL, time.Hour)
			forged := WithProperties(Properties("x-by=mallory\nx-time=1\nc=d\n"))
			must(t, c.Set(ctx, "/copied", []byte("v"), forged))
			check("a copy", wantCause(t, w, OpSet, "/copied", CauseSet).Properties, with.by, "c=d\n")
			must(t, c.Delete(ctx, "/plain"))
			check("a deletion", wantCause(t, w, OpDelete, "/plain", CauseDeleted).Properties, with.by, "")
			must(t, s.Set(ctx, "/own", []byte("v")))
			check("the server's own", wantCause(t, w, OpSet, "/own", CauseSet).Properties, "", "")
			must(t, c.Set(ctx, "/brief", []byte("v"), WithTTL(10*time.Millisecond)))
			check("a brief one", wantCause(t, w, OpSet, "/brief", CauseSet).Properties, with.by, "")
			check("an expiry", wantCause(t, w, OpDelete, "/brief", CauseExpired).Properties, "", "cause=expired\n")
			if err := c.Set(ctx, "/k", []byte("v"), WithProperty("x-by", "mallory")); !errors.Is(err, &MessageError{Reason: ReasonProperties}) {
				t.Errorf("x-by of a client: %v", err)
			}
			joined := open() // gets them as a snapshot
			for entry := range joined.All() {
				by := with.by
				if string(entry.Key) == "/own" {
					by = ""
				}
				check("a snapshot", entry.Properties, by, string(entry.Properties.User()))
			}
			for _, v := range versionsAt(t, c, "/plain") {
				at, _, _ := v.Properties.Stamped()
				if v.By != with.by || !v.Time.Equal(at) {
					t.Errorf("the version of %v by %q was stamped %v by %q", v.Time, v.By, at, with.by)
				}
			}
			if name == "NULL" {
				of := newPlainClient(t, s)
				of.set("/forged", "x-by=mallory\nx-time=1\na=b\n", "v")
				check("a forgery", wantCause(t, w, OpSet, "/forged", CauseSet).Properties, "", "a=b\n")
			}
		})
	}
}

// Without the option a client's stamp is removed all the same, and updates have none.
func TestNoStamp(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	w := openWatch(t, c)
	wantCause(t, w, OpSynced, "", 0)
	newPlainClient(t, s).set("/forged", "x-by=mallory\nx-time=1\n", "v")
	if e := wantCause(t, w, OpSet, "/forged", CauseSet); len(e.Properties) > 0 {
		t.Errorf("%q", e.Properties)
	}
}

// What a stamp adds counts for the limit of the map.
func TestStampAndMapLimit(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const limit = 20_000
	s := startServer(t, ServerOptions{Stamp: true, MaxMapBytes: limit})
	full := 0
	for i := range 1000 {
		if err := s.Set(ctx, fmt.Sprint("/", i), []byte("v")); err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			full++
		}
	}
	if n := s.Stats().MapBytes; n > limit || n < limit*9/10 || full == 0 {
		t.Errorf("the map has %d of %d bytes; %d refused", n, limit, full)
	}
}

// The updates of a transaction have the same stamp, are still seen as one, and are versions.
func TestStampedTransaction(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{Stamp: true, History: 3})
	c := followServer(t, s.Endpoints().Snapshot)
	w := openWatch(t, c)
	wantCause(t, w, OpSynced, "", 0)
	var b Batch
	for i := range 3 {
		b.Set(fmt.Sprint("/", i), []byte("v"), WithProperty("n", fmt.Sprint(i)))
	}
	first, err := c.ApplyIf(ctx, &b, IfAbsent().On("/0"))
	must(t, err)
	var stamp time.Time
	for i := range 3 {
		key := fmt.Sprint("/", i)
		e := wantCause(t, w, OpSet, key, CauseSet)
		at, _, ok := e.Properties.Stamped()
		if !ok || i > 0 && !at.Equal(stamp) || e.Sequence != first+int64(i) || e.Transaction != first+2 {
			t.Errorf("%s has sequence %d, is of transaction %d, and has the stamp %v, %v; the first has %d and %v", key, e.Sequence, e.Transaction, at, ok, first, stamp)
		}
		stamp = at
		all := versionsAt(t, c, key)
		wantVersions(t, all, fmt.Sprintf(`set set "v" "n=%d\n"`, i))
		if len(all) == 1 && !all[0].Time.Equal(at) {
			t.Errorf("the version of %s is of %v, its stamp of %v", key, all[0].Time, at)
		}
	}
}
