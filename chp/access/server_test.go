package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// node is a server with a file of rights, and the keys of its clients.
type node struct {
	*chp.Server
	t    testing.TB
	name string // of the file
	file *File
	keys map[string]zmtp.KeyPair
	own  zmtp.KeyPair
}

const rulesText = `
[users.a]
curve = ['KEY-a']
[users.b]
curve = ['KEY-b']
[users.ab]
curve = ['KEY-ab']
[users.writer]
curve = ['KEY-writer']
[users.reader]
curve = ['KEY-reader']
[users.root]
curve = ['KEY-root']
[[rules]]
who = ['a', 'ab']
read = ['/a/']
write = ['/a/']
[[rules]]
who = ['b', 'ab']
read = ['/b/']
write = ['/b/']
[[rules]]
who = ['writer']
write = ['/a/', '/b/']
[[rules]]
who = ['reader']
read = ['']
write = ['/a/', '/b/key']
[[rules]]
who = ['root']
read = ['']
write = ['']
admin = true
`

// text replaces the keys in a file.
func (n *node) text(rules string) string {
	for name, pair := range n.keys {
		rules = strings.ReplaceAll(rules, "KEY-"+name+"'", pair.Public.String()+"'")
	}
	return rules
}

// serve starts a server with CURVE and these rules.
func serve(t testing.TB, rules string, change ...func(*chp.ServerOptions)) *node {
	t.Helper()
	n := &node{t: t, name: filepath.Join(t.TempDir(), "access.toml"), keys: map[string]zmtp.KeyPair{}, own: zmtp.GenerateKeyPair()}
	for _, name := range []string{"a", "b", "ab", "writer", "reader", "root", "stranger"} {
		n.keys[name] = zmtp.GenerateKeyPair()
	}
	write(t, n.name, n.text(rules))
	file, err := Open(n.name)
	if err != nil {
		t.Fatal(err)
	}
	n.file = file
	o := chp.ServerOptions{
		Port: 0, Access: file, Logger: slog.New(slog.DiscardHandler), History: 8,
		Security: sockets.Security{CurveServer: true, CurveSecretKey: n.own.Secret},
	}
	for _, f := range change {
		f(&o)
	}
	start(t, n, o)
	return n
}

func start(t testing.TB, n *node, o chp.ServerOptions) {
	t.Helper()
	server, err := chp.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	n.Server = server
	done := make(chan error, 1)
	go func() { done <- server.Serve(context.Background()) }()
	<-server.Ready()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
}

// security is that of a client with a name.
func (n *node) security(name string) sockets.Security {
	return sockets.Security{CurveSecretKey: n.keys[name].Secret, CurveServerKey: n.own.Public}
}

// client returns a client with a name, that may not be active yet.
func (n *node) client(name string, subtrees ...string) *chp.Client {
	n.t.Helper()
	return n.connect(chp.ClientOptions{Security: n.security(name), Subtrees: subtrees})
}

func (n *node) connect(o chp.ClientOptions) *chp.Client {
	n.t.Helper()
	o.Servers, o.Logger = []string{n.Endpoints().Snapshot}, slog.New(slog.DiscardHandler)
	c, err := chp.NewClient(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// active waits until a client follows the server.
func active(t testing.TB, c *chp.Client) *chp.Client {
	t.Helper()
	if err := c.WaitActive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// denied returns the error of a client that is denied, when it is.
func denied(t testing.TB, c *chp.Client) (why *chp.AccessError) {
	t.Helper()
	testenv.Eventually(t, "the client is denied", func() bool {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		return errors.As(c.WaitActive(ended), &why)
	})
	return why
}

func mustDeny(t testing.TB, err error, verb chp.Verb, key string) {
	t.Helper()
	var why *chp.AccessError
	if !errors.As(err, &why) || why.Verb != verb || key != "" && why.Key != key {
		t.Errorf("%v, want that %v of %q is denied", err, verb, key)
	}
}

func keysOf(c *chp.Client) []string {
	var all []string
	c.Range(func(key, _ []byte) bool {
		all = append(all, string(key))
		return true
	})
	slices.Sort(all)
	return all
}

// A client reads what it may, and is told what it may not.
func TestReadsAreRestricted(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	for _, key := range []string{"/a/1", "/ab/1", "/a", "/b/1", "x"} {
		if _, err := n.SetSync(t.Context(), key, []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	a := active(t, n.client("a", "/a/"))
	if got := keysOf(a); !slices.Equal(got, []string{"/a/1"}) {
		t.Errorf("a has %q", got)
	}
	both := active(t, n.client("ab", "/a/", "/b/"))
	if got := keysOf(both); !slices.Equal(got, []string{"/a/1", "/b/1"}) {
		t.Errorf("ab has %q", got)
	}
	if got := keysOf(active(t, n.client("a", "/a/1"))); !slices.Equal(got, []string{"/a/1"}) {
		t.Errorf("a with one key has %q", got)
	}
	if got := keysOf(active(t, n.client("root"))); len(got) != 5 {
		t.Errorf("root has %q", got)
	}
	for _, test := range []struct{ who, subtree, name string }{
		{"a", "", "a"}, {"a", "/ab/", "a"}, {"a", "/a", "a"}, {"ab", "", "ab"}, {"a", "/b/", "a"}, {"writer", "/a/", "writer"}, {"a", "$lease/", "a"},
	} {
		why := denied(t, n.client(test.who, "/a/x", test.subtree))
		if test.subtree == "" {
			why = denied(t, n.client(test.who))
		}
		if why.Verb != chp.VerbRead || why.Name != test.name || why.Key != test.subtree && test.who != "writer" {
			t.Errorf("%s of %q: %#v", test.who, test.subtree, why)
		}
	}
	// Updates come in order, so what came before the last one of them has not been sent.
	for _, key := range []string{"/ab/2", "/b/2", "/a", "/a/2"} {
		if _, err := n.SetSync(t.Context(), key, []byte("w")); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "/a/2 arrives", func() bool { _, ok := a.Get("/a/2"); return ok })
	if got := keysOf(a); !slices.Equal(got, []string{"/a/1", "/a/2"}) {
		t.Errorf("a has %q", got)
	}
	if n.Stats().Refused[chp.ReasonAccess] == 0 {
		t.Error("nothing is counted")
	}
}

// A client writes what it may, in order, and each update that is refused is answered.
func TestWritesAreRestricted(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	a := active(t, n.client("a", "/a/"))
	ctx := t.Context()
	if _, err := a.SetSync(ctx, "/a/1", []byte("v")); err != nil {
		t.Fatal(err)
	}
	root := active(t, n.client("root"))
	for _, key := range []string{"/b/1", "/ab/1", "/a", "x"} {
		// A client of this package does not write outside of its subtrees; one that could would be refused.
		if _, err := a.SetSync(ctx, key, []byte("v")); !errors.Is(err, chp.ErrOutsideSubtrees) {
			t.Errorf("%q: %v", key, err)
		}
		if err := a.Set(ctx, key, []byte("v")); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	if err := a.Flush(ctx); err != nil && !errors.Is(err, chp.ErrRefused) {
		t.Error(err)
	}
	testenv.Eventually(t, "the refusals", func() bool { return n.Stats().Refused[chp.ReasonAccess] == 4 })
	for i := range 100 {
		if err := a.Set(ctx, fmt.Sprint("/a/", i), []byte("w")); err != nil {
			t.Fatal(err)
		}
		if err := a.Set(ctx, fmt.Sprint("/b/", i), []byte("w")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.SetSync(ctx, "/a/last", []byte("w")); err != nil {
		t.Fatal(err)
	}
	if err := root.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := root.Len(); got != 101 {
		t.Errorf("there are %d keys: %q", got, keysOf(root))
	}
	testenv.Eventually(t, "the refusals", func() bool { return n.Stats().Refused[chp.ReasonAccess] == 104 })
	reader := active(t, n.client("reader"))
	for _, key := range []string{"/b/1", "/ab/1", "/a", "/b/key2", "/b/key/1", "x"} {
		_, err := reader.SetSync(ctx, key, []byte("v"))
		mustDeny(t, err, chp.VerbWrite, key)
		if !errors.Is(err, chp.ErrRefused) || !errors.Is(err, &chp.MessageError{Reason: chp.ReasonAccess}) {
			t.Errorf("%q: %v", key, err)
		}
		_, err = reader.DeleteSync(ctx, key)
		mustDeny(t, err, chp.VerbWrite, key)
	}
	if _, err := reader.SetSync(ctx, "/b/key", []byte("v")); err != nil {
		t.Error(err)
	}
}

// Transactions are refused as a whole, conditions are reads, and versions of a key are those of readers.
func TestTransactionsAreRestricted(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	ctx := t.Context()
	if _, err := n.SetSync(ctx, "/b/1", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	a := active(t, n.client("a", "/a/"))
	var b chp.Batch
	b.Set("/a/1", []byte("v"))
	b.Set("/b/1", []byte("v"))
	_, err := a.ApplyIf(ctx, &b)
	mustDeny(t, err, chp.VerbWrite, "")
	if !errors.Is(err, chp.ErrRefused) {
		t.Errorf("%v is not ErrRefused", err)
	}
	var empty chp.Batch
	for _, c := range []chp.Condition{chp.IfPresent().On("/b/1"), chp.IfValue([]byte("secret")).On("/b/1"), chp.IfAbsent().On("/b/nothing"), chp.IfSequence(1).On("/b/1")} {
		_, err := a.ApplyIf(ctx, &empty, c)
		mustDeny(t, err, chp.VerbWrite, "")
	}
	if _, err := a.SetIf(ctx, "/a/1", []byte("v"), chp.IfAbsent()); err != nil {
		t.Error(err)
	}
	if _, err := a.History(ctx, "/a/1"); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"/b/1", "/ab/1", "/a", "$lease/x"} {
		_, err = a.History(ctx, key)
		mustDeny(t, err, chp.VerbRead, key)
	}
	if _, ok := n.Get("/b/1"); !ok {
		t.Error("/b/1 is gone")
	}
}

// A watch that begins in the past has only what its client may read.
func TestThePastIsRestricted(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	ctx := t.Context()
	if _, err := n.SetSync(ctx, "/b/1", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	a := active(t, n.client("a", "/a/"))
	at := a.Sequence()
	for _, key := range []string{"/b/2", "/a/2"} {
		if _, err := n.SetSync(ctx, key, []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	w, err := a.WatchWith(ctx, chp.WatchOptions{Since: at, Subtrees: []string{"/a/"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	e, err := w.Next(ctx)
	if err != nil || string(e.Key) != "/a/2" {
		t.Errorf("%+v, %v", e, err)
	}
}

// Who has no right at all is not accepted.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	c := n.client("stranger", "/a/")
	testenv.Eventually(t, "the refusal", func() bool {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		return errors.Is(c.WaitActive(ended), zmtp.ErrRefused)
	})
}

// Administrators, and the owners of the server's own key, may ask; others are told that they may not.
func TestAdministrationIsRestricted(t *testing.T) {
	t.Parallel()
	reloads := 0
	n := serve(t, rulesText, func(o *chp.ServerOptions) { o.Reload = func(context.Context) error { reloads++; return nil } })
	ctx, at := t.Context(), n.Endpoints().Snapshot
	n.keys["own"] = n.own
	for _, name := range []string{"root", "own"} {
		if _, err := chp.ServerStatus(ctx, at, n.security(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := chp.Reload(ctx, at, n.security(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var refused *chp.HandoverError
		if err := chp.Failover(ctx, at, n.security(name)); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if reloads != 2 {
		t.Errorf("%d reloads", reloads)
	}
	_, err := chp.ServerStatus(ctx, at, n.security("ab"))
	mustDeny(t, err, chp.VerbAdmin, "")
	mustDeny(t, chp.Failover(ctx, at, n.security("ab")), chp.VerbAdmin, "")
	mustDeny(t, chp.Promote(ctx, at, n.security("ab")), chp.VerbAdmin, "")
	mustDeny(t, chp.Reload(ctx, at, n.security("ab")), chp.VerbAdmin, "")
	who, err := chp.WhoAmI(ctx, at, n.security("ab"))
	if err != nil || who.Name != "ab" || !slices.Equal(who.Read, []string{"/a/", "/b/"}) || who.Admin || !who.Restricted || who.Key != n.keys["ab"].Public.String() {
		t.Errorf("%+v, %v", who, err)
	}
}

// A lease is its owner's: others neither end nor renew it, nor attach keys to it.
func TestLeasesAreRestricted(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	ctx := t.Context()
	a, b, root := active(t, n.client("a", "/a/")), active(t, n.client("b", "/b/")), active(t, n.client("root"))
	lease, err := a.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.SetSync(ctx, "/a/1", []byte("v"), chp.WithLease(lease)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetSync(ctx, "/b/1", []byte("v"), chp.WithLeaseID(lease.ID())); err == nil {
		t.Error("b has attached a key to the lease of a")
	} else {
		mustDeny(t, err, chp.VerbWrite, "")
	}
	key := "$lease/" + lease.ID()
	mustDeny(t, b.RevokeLease(ctx, lease.ID()), chp.VerbWrite, key)
	_, err = b.RenewLease(ctx, lease.ID())
	mustDeny(t, err, chp.VerbWrite, key)
	_, err = b.LeaseLeft(ctx, lease.ID())
	mustDeny(t, err, chp.VerbRead, key)
	_ = b.Delete(ctx, "$lease/"+lease.ID())
	testenv.Eventually(t, "the refusals", func() bool { return n.Stats().Refused[chp.ReasonAccess] == 5 })
	if left, err := a.RenewLease(ctx, lease.ID()); left == 0 || err != nil {
		t.Errorf("a: %v, %v", left, err)
	}
	if left, err := root.LeaseLeft(ctx, lease.ID()); left == 0 || err != nil {
		t.Errorf("root: %v, %v", left, err)
	}
	if _, ok := n.Get("/a/1"); !ok {
		t.Error("/a/1 is gone")
	}
	if err := lease.Revoke(ctx); err != nil {
		t.Error(err)
	}
	testenv.Eventually(t, "/a/1 is gone", func() bool { _, ok := n.Get("/a/1"); return !ok })
}

// A name that a client announces, or sends, is not that of its updates.
func TestAuthorIsNotForged(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText, func(o *chp.ServerOptions) { o.Stamp = true })
	ctx := t.Context()
	a := active(t, n.client("a", "/a/"))
	for _, p := range []string{"by", "x-by", "user-id"} {
		if _, err := a.SetSync(ctx, "/a/1", []byte("v"), chp.WithProperty(p, "root")); err != nil && !strings.HasPrefix(p, "x-") {
			t.Errorf("%s: %v", p, err)
		}
		if e, ok := n.Lookup("/a/1"); ok == chp.PresenceFound {
			if _, by, ok := e.Properties.Stamped(); !ok || by != "a" {
				t.Errorf("%s: by %q, %v", p, by, ok)
			}
		}
	}
}

// notActive returns why a client follows no server.
func notActive(c *chp.Client) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return c.WaitActive(ended)
}

// A change of the file ends the connections of those whose rights have changed, and of nobody else. What they
// had begun ends with it.
func TestRightsEndWithTheFile(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	ctx := t.Context()
	lost := make(chan chp.LinkEvent, 100)
	other := active(t, n.connect(chp.ClientOptions{Security: n.security("b"), Subtrees: []string{"/b/"}, OnLink: func(e chp.LinkEvent) {
		if e.Kind == chp.LinkLost {
			lost <- e
		}
	}}))
	a, ab := active(t, n.client("a", "/a/")), active(t, n.client("ab", "/a/", "/b/"))
	if _, err := ab.SetSync(ctx, "/b/1", []byte("v")); err != nil {
		t.Fatal(err)
	}
	// a is removed, ab loses /b/ but for writing.
	rules := strings.Replace(rulesText, "['b', 'ab']", "['b']", 1)
	rules = strings.Replace(rules, "['writer']", "['writer', 'ab']", 1)
	rules = strings.Replace(rules, "[users.a]\ncurve = ['KEY-a']\n", "", 1)
	rules = strings.Replace(rules, "['a', 'ab']", "['ab']", 1)
	write(t, n.name, n.text(rules))
	if changed, err := n.file.Reload(); !changed || err != nil {
		t.Fatalf("%v, %v", changed, err)
	}
	testenv.Eventually(t, "a is refused", func() bool { return errors.Is(notActive(a), zmtp.ErrRefused) })
	why := denied(t, ab)
	if why.Key != "/b/" || why.Name != "ab" {
		t.Errorf("%#v", why)
	}
	if _, err := n.SetSync(ctx, "/a/later", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SetSync(ctx, "/b/later", []byte("v")); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "b goes on", func() bool { _, ok := other.Get("/b/later"); return ok })
	for _, c := range []*chp.Client{a, ab} {
		if _, ok := c.Get("/a/later"); ok {
			t.Error("an update arrives without a right")
		}
	}
	if len(lost) > 0 {
		t.Errorf("b was disconnected: %+v", <-lost)
	}
	// And the rights come back.
	write(t, n.name, n.text(rulesText))
	if changed, err := n.file.Reload(); !changed || err != nil {
		t.Fatalf("%v, %v", changed, err)
	}
	testenv.Eventually(t, "a and ab come back", func() bool {
		_, one := a.Get("/a/later")
		_, two := ab.Get("/b/later")
		return one && two
	})
	if len(lost) > 0 {
		t.Errorf("b was disconnected: %+v", <-lost)
	}
}

// A password that changes ends the connections that were made with the former one.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	var hashes [2]string
	for i := range hashes {
		hashes[i] = quickHash(t, fmt.Sprint("secret", i))
	}
	rules := "[users.anna]\nplain='%s'\n[[rules]]\nwho=['anna']\nread=['/a/']\n"
	n := serve(t, fmt.Sprintf(rules, hashes[0]), func(o *chp.ServerOptions) { o.Security = sockets.Security{PlainServer: true} })
	c := active(t, n.connect(chp.ClientOptions{Security: sockets.Security{PlainUsername: "anna", PlainPassword: "secret0"}, Subtrees: []string{"/a/"}}))
	write(t, n.name, fmt.Sprintf(rules, hashes[1]))
	if _, err := n.file.Reload(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the refusal", func() bool { return errors.Is(notActive(c), zmtp.ErrRefused) })
	active(t, n.connect(chp.ClientOptions{Security: sockets.Security{PlainUsername: "anna", PlainPassword: "secret1"}, Subtrees: []string{"/a/"}}))
}

// While the file changes, no update of a client that keeps its right to write is lost, and none is made that was not
// allowed at any time.
func TestNoUpdateIsLostWhileRightsChange(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText)
	ctx := t.Context()
	c := active(t, n.client("reader"))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			write(t, n.name, n.text(rulesText+fmt.Sprintf("[[rules]]\nwho=['reader']\nwrite=['/extra/%d/']\n", i)))
			if _, err := n.file.Reload(); err != nil {
				t.Error(err)
			}
			// Once it has come back it gets on, before the next change.
			if _, err := c.SetSync(ctx, "/a/turn", []byte("v")); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	const count = 2000
	for i := range count {
		if err := c.Set(ctx, fmt.Sprint("/a/", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(ctx); err != nil {
		t.Error(err)
	}
	for i := range 20 {
		if _, err := c.SetSync(ctx, fmt.Sprint("/never/", i), []byte("v")); err == nil {
			t.Error("an update is made without a right")
		}
	}
	close(stop)
	<-stopped
	for i := range count {
		if _, ok := n.Get(fmt.Sprint("/a/", i)); !ok {
			t.Fatalf("update %d is lost", i)
		}
	}
	if got := n.Len(); got != count+1 {
		t.Errorf("%d keys, want %d", got, count+1)
	}
}

// A client that sends more than its limit is slowed down, on all of its connections together, and loses nothing; another one is
// not.
func TestLimitsSlowOneClient(t *testing.T) {
	t.Parallel()
	n := serve(t, rulesText+"[[limits]]\nwho = ['a']\nupdates = 10000\n")
	ctx := t.Context()
	a, b := active(t, n.client("a", "/a/")), active(t, n.client("b", "/b/"))
	const count = 20000
	began := time.Now()
	for i := range count {
		if err := a.Set(ctx, fmt.Sprint("/a/", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	flushed := make(chan error, 1)
	go func() { flushed <- a.Flush(ctx) }()
	for i := range 100 {
		if _, err := b.SetSync(ctx, fmt.Sprint("/b/", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	// What is read at once, and the burst, are not waited for.
	if took := time.Since(began); took < time.Second {
		t.Errorf("%d updates took %v", count, took)
	}
	if got := n.Len(); got != count+100 {
		t.Errorf("%d keys", got)
	}
}
