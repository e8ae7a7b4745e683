package chp

import (
	"clustermap/internal/wake"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// The tests of this file are of the client's requirements, as RFC 12 has them. The other
// side is scripted.

// RFC 12 (SHOULD, client): connect DEALER to P and SUB to P+1. (MAY): connect PUB to P+2, only if it wants to write.
func TestClientConnectsWhatItNeeds(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(1)
	must(t, c.WaitActive(testContext(t)))
	if s.connected("DEALER at P+0") != 1 || s.connected("SUB at P+1") != 1 || len(s.peers) != 2 {
		t.Errorf("connected are %q", s.peers)
	}
	must(t, c.Set(testContext(t), "k", []byte("v")))
	s.kvset()
	if s.connected("PUB at P+2") != 1 {
		t.Errorf("after a Set connected are %q", s.peers)
	}
}

// RFC 12 (MUST, client): begin with ICANHAZ on the snapshot connection.
func TestClientBeginsWithICANHAZ(t *testing.T) {
	t.Parallel()
	for _, ours := range []bool{asOurs, asPlain} {
		s := newScripted(t, ours)
		c := followScripted(t, ClientOptions{}, s)
		s.subscribed("k", 1)
		if c.State() == StateActive {
			t.Error("ACTIVE without a snapshot")
		}
		stop := s.beat(0)
		// ask fails the test if the first message is anything else.
		id, subtree := s.ask()
		stop()
		if subtree != "" {
			t.Errorf("asked for %q", subtree)
		}
		s.kthxbai(id, 0, "")
		must(t, c.WaitActive(testContext(t)))
		s.nobodyAsks()
	}
}

// The subscription is in force before the client asks for the snapshot. A plain
// server's first HUGZ is the sign; a client that asked earlier might miss
// updates between the snapshot and the subscription.
func TestClientSubscribesBeforeItAsks(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{Subtrees: []string{"/a/", "/b/"}}, s)
	other := followScripted(t, ClientOptions{Subtrees: []string{"/a/"}}, s)
	s.subscribed("/b/", 1)
	s.subscribed("/a/", 2)
	s.subscribed("HUGZ", 2)
	// An update of one subtree does not say that the other is subscribed to: the client
	// asks after HUGZ, when the other one has joined.
	s.kvpub(pub{"/a/1", 1, "x"})
	id, _ := s.ask()
	s.kvsync(id, pub{"/a/1", 1, "x"})
	s.kthxbai(id, 1, "/a/")
	must(t, other.WaitActive(testContext(t)))
	s.nobodyAsks()
	s.answer(1, pub{"/a/1", 1, "x"})
	s.answer(1)
	wantContents(t, c, 1, map[string]string{"/a/1": "x"})
}

// RFC 12 (MAY, client): leave the subtree empty; if not empty it has the form of a
// slash, segments and a slash. Only our own servers are asked for one key.
func TestClientSubtreeForm(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ours     bool
		subtrees []string
		want     []string
	}{
		{asPlain, nil, []string{""}},
		{asOurs, []string{"", "/a/"}, []string{""}},
		{asPlain, []string{"/b/", "/a/", "/a/x/"}, []string{"/a/", "/b/"}},
		{asPlain, []string{"/a/key", "/a/b/key"}, []string{"/a/"}},
		{asPlain, []string{"key"}, []string{""}},
		{asPlain, []string{"/key"}, []string{""}},
		{asOurs, []string{"/a/key", "key", "/b/"}, []string{"/a/key", "/b/", "key"}},
	} {
		s := newScripted(t, test.ours)
		c := followScripted(t, ClientOptions{Subtrees: test.subtrees}, s)
		var asked []string
		for range test.want {
			stop := s.beat(0)
			id, subtree := s.ask()
			stop()
			asked = append(asked, subtree)
			s.kthxbai(id, 1, subtree)
		}
		must(t, c.WaitActive(testContext(t)))
		s.nobodyAsks()
		if !slices.Equal(asked, test.want) {
			t.Errorf("for %q the client asked for %q, want %q", test.subtrees, asked, test.want)
		}
	}
}

// Keys that a prefix brings along beside the one that was wanted are left out,
// in the snapshot and afterwards.
func TestClientOfOneKey(t *testing.T) {
	t.Parallel()
	for _, ours := range []bool{asOurs, asPlain} {
		s := newScripted(t, ours)
		c := followScripted(t, ClientOptions{Subtrees: []string{"/a/k"}}, s)
		s.subscribed("HUGZ", 1)
		s.answer(5, pub{"/a/k", 1, "x"}, pub{"/a/kk", 2, "x"}, pub{"/a/j", 3, "x"})
		must(t, c.WaitActive(testContext(t)))
		s.kvpub(pub{"/a/kk", 6, "y"}, pub{"/a/k", 7, "y"})
		wantContents(t, c, 7, map[string]string{"/a/k": "y"})
	}
}

// RFC 12 (MAY, server): put any value, even 0, as KVSYNC sequence. The client takes
// the pair with any sequence, and updates above the cut after it.
func TestClientTakesAnyKVSYNCSequence(t *testing.T) {
	t.Parallel()
	for _, ours := range []bool{asOurs, asPlain} {
		s := newScripted(t, ours)
		c := followScripted(t, ClientOptions{}, s)
		s.answer(10, pub{"zero", 0, "a"}, pub{"huge", 1 << 62, "b"}, pub{"below zero", -1, "c"})
		must(t, c.WaitActive(testContext(t)))
		s.subscribed("x", 1)
		s.kvpub(pub{"huge", 11, "new"})
		wantContents(t, c, 11, map[string]string{"zero": "a", "huge": "new", "below zero": "c"})
	}
}

// RFC 12 (SHOULD, client): start reading and applying the subscriber connection
// after KTHXBAI. The client reads it earlier, so as not to fall behind, but
// nothing of it is to be seen before KTHXBAI.
func TestClientAppliesAfterKTHXBAI(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	w := openWatch(t, c)
	stop := s.beat(0)
	id, _ := s.ask()
	stop()
	s.kvpub(pub{"live", 11, "x"}, pub{"dead", 12, "x"}, pub{"dead", 13, ""}, pub{"old", 9, "stale"})
	s.kvsync(id, pub{"old", 1, "snapshot"})
	s.kvsync(id, pub{"dead", 1, "snapshot"})
	meanwhile(t)
	if n := c.Len(); n != 0 || c.State() != StateSyncing {
		t.Errorf("%d keys in state %v before KTHXBAI", n, c.State())
	}
	s.kthxbai(id, 10, "")
	s.kvpub(pub{"next", 14, "y"})
	wantContents(t, c, 14, map[string]string{"live": "x", "old": "snapshot", "next": "y"})
	e, err := w.Next(testContext(t))
	must(t, err)
	if e.Op != OpSet {
		t.Errorf("first event %s", say(e))
	}
}

// RFC 12 (MUST, client): discard a KVPUB whose sequence is not above that of the
// last KTHXBAI or KVPUB.
func TestClientDiscardsOldSequences(t *testing.T) {
	t.Parallel()
	for _, ours := range []bool{asOurs, asPlain} {
		s := newScripted(t, ours)
		c := followScripted(t, ClientOptions{}, s)
		s.subscribed("k", 1)
		s.answer(10, pub{"k", 3, "snapshot"})
		must(t, c.WaitActive(testContext(t)))
		s.kvpub(pub{"k", 9, "old"}, pub{"k", 10, "old"}, pub{"a", 11, "1"}, pub{"a", 11, "2"}, pub{"a", 10, ""}, pub{"a", -5, "3"}, pub{"b", 12, "x"})
		wantContents(t, c, 12, map[string]string{"k": "snapshot", "a": "1", "b": "x"})
		if n := c.Stats().Stale; n != 5 {
			t.Errorf("%d discarded, want 5", n)
		}
	}
}

// RFC 12 (SHOULD, client): delete the key on an empty KVPUB value.
func TestClientDeletesOnEmptyValue(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(10, pub{"a", 3, "x"}, pub{"b", 4, "y"})
	must(t, c.WaitActive(testContext(t)))
	s.publish("a", 11, nil, "ttl=1699999999999\n", "") // as an expiry of the guide's server
	s.kvpub(pub{"unknown", 12, ""}, pub{"c", 13, "z"})
	wantContents(t, c, 13, map[string]string{"b": "y", "c": "z"})
	if _, ok := c.Get("a"); ok {
		t.Error("the key is there still")
	}
}

// RFC 12 (MAY, client): treat missing HUGZ as a server crash. (MAY): detect the lack of HUGZ over a period.
func TestClientTakesSilenceForACrash(t *testing.T) {
	t.Parallel()
	first, second := newScripted(t, asPlain), newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{HeartbeatTimeout: 2 * time.Second}, first, second)
	first.answer(10, pub{"k", 1, "first"})
	must(t, c.WaitActive(testContext(t)))
	stop := first.beat(10)
	silence(t, 2*time.Second)
	if c.State() != StateActive || c.Server() != first.name() {
		t.Errorf("the client is %v at %s in spite of HUGZ", c.State(), c.Server())
	}
	stop()
	second.answer(3, pub{"k", 1, "second"})
	stop = second.beat(3)
	defer stop()
	wantContents(t, c, 3, map[string]string{"k": "second"})
	if c.Server() != second.name() {
		t.Errorf("the client follows %s", c.Server())
	}
}

// RFC 12 (MAY, client): without HeartbeatTimeout the lack of HUGZ is not detected,
// not even while joining, since some servers send none.
func TestClientWithoutTimeoutExpectsNoHUGZ(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{HeartbeatTimeout: -1, SyncTimeout: 2 * time.Second}, s)
	id, _ := s.ask() // after SyncTimeout, for lack of a sign
	s.kthxbai(id, 4, "")
	must(t, c.WaitActive(testContext(t)))
	silence(t, 2*time.Second)
	s.kvpub(pub{"k", 5, "v"})
	wantContents(t, c, 5, map[string]string{"k": "v"})
	if n := c.Stats().Syncs; n != 1 {
		t.Errorf("%d snapshots, want 1", n)
	}
}

// RFC 12 (MAY, client): send KVSET; its sequence has no meaning. (SHOULD): use a
// universally unique UUID in KVSET when servers are paired. (MAY): set a UUID in every
// KVSET.
func TestClientUUIDInEveryKVSET(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	one := followScripted(t, ClientOptions{}, s)
	s.answer(1)
	two := followScripted(t, ClientOptions{Subtrees: []string{"/a/"}}, s)
	s.answer(1)
	must(t, one.WaitActive(ctx))
	must(t, two.WaitActive(ctx))
	seen := map[uuid.UUID]bool{}
	for range 10 {
		for _, c := range []*Client{one, two} {
			for _, send := range []func() error{
				func() error { return c.Set(ctx, "/a/k", []byte("v")) },
				func() error { return c.Set(ctx, "/b/k", []byte("v"), WithTTL(time.Second)) },
				func() error { return c.Delete(ctx, "/a/k") },
			} {
				must(t, send())
				m := s.kvset()
				id, err := uuid.FromBytes(m.uuid)
				must(t, err)
				if id.Version() != 8 || seen[id] {
					t.Fatalf("UUID %v of version %d, seen before: %v", id, id.Version(), seen[id])
				}
				seen[id] = true
			}
		}
	}
}

// The other frames of a KVSET are correct.
func TestClientKVSETForm(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(1)
	big := strings.Repeat("v", 1<<20)
	for _, test := range []struct {
		send func() error
		want kv
	}{
		{func() error { return c.Set(ctx, "k", []byte("v")) }, kv{key: "k", properties: "ttl=0\n", value: "v"}},
		{func() error { return c.Set(ctx, "k", []byte(big)) }, kv{key: "k", properties: "ttl=0\n", value: big}},
		{func() error { return c.Set(ctx, "k", []byte("v"), WithTTL(90*time.Second), WithProperty("a", "b")) },
			kv{key: "k", properties: "ttl=90\na=b\n", value: "v"}},
		{func() error { return c.Set(ctx, "k", []byte("v"), WithTTL(250*time.Millisecond)) },
			kv{key: "k", properties: "ttl=0.25\n", value: "v"}},
		{func() error { return c.Delete(ctx, "k") }, kv{key: "k"}},
	} {
		must(t, test.send())
		got := s.kvset()
		if got.key != test.want.key || got.seq != 0 || got.properties != test.want.properties || got.value != test.want.value {
			t.Errorf("KVSET %.80v, want %.80v", got, test.want)
		}
	}
}

// RFC 12 (MAY, client): connect to a backup server and re-synchronise. The new
// state takes the place of the old one as a whole: no key stays that the backup
// does not have, and its sequences may be lower.
func TestClientTurnsToTheBackup(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first, second := newScripted(t, asOurs), newScripted(t, asOurs)
	states := make(chan string, 100)
	c := followScripted(t, ClientOptions{OnState: func(state State, server string) {
		states <- state.String() + " " + map[string]string{first.name(): "first", second.name(): "second"}[server]
	}}, first, second)
	w := openWatch(t, c)
	first.subscribed("k", 1)
	first.answer(1000, pub{"gone", 1, "x"}, pub{"same", 2, "x"}, pub{"other", 3, "x"})
	must(t, c.WaitActive(ctx))
	first.kvpub(pub{"late", 1001, "x"})
	wantContents(t, c, 1001, map[string]string{"gone": "x", "same": "x", "other": "x", "late": "x"})
	first.close()

	second.subscribed("k", 1)
	stop := second.beat(5)
	id, _ := second.ask()
	stop()
	second.kvsync(id, pub{"same", 2, "x"})
	second.kvsync(id, pub{"other", 3, "y"})
	meanwhile(t)
	if _, ok := c.Get("gone"); !ok || c.Len() != 4 || c.State() != StateSyncing {
		t.Errorf("while joining the client is %v with %v, and not as it was", c.State(), have(c))
	}
	second.kthxbai(id, 5, "")
	must(t, c.WaitActive(ctx))
	second.kvpub(pub{"new", 6, "x"})
	wantContents(t, c, 6, map[string]string{"same": "x", "other": "y", "new": "x"})

	var events []string
	for range 9 {
		e, err := w.Next(ctx)
		must(t, err)
		events = append(events, say(e))
	}
	slices.Sort(events[:3])
	if got, want := strings.Join(events[:5], " "), "gone=x@1 other=x@3 same=x@2 synced@1000 late=x@1001"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	slices.Sort(events[5:8])
	if got, want := strings.Join(events[5:], " "), "-gone@5 -late@5 other=y@3 new=x@6"; got != want {
		t.Errorf("then %q, want %q", got, want)
	}
	nothingMore(t, w)

	var path []string
	for len(states) > 0 {
		path = append(path, <-states)
	}
	if got, want := strings.Join(path, ", "), "INITIAL first, SYNCING first, ACTIVE first, INITIAL first, INITIAL second, SYNCING second, ACTIVE second"; got != want {
		t.Errorf("states %q, want %q", got, want)
	}
}

// A server that takes requests and does not answer, as a passive one does,
// is left after at most two of them.
func TestClientLeavesASilentServer(t *testing.T) {
	t.Parallel()
	passive, active := newScripted(t, asPlain), newScripted(t, asPlain)
	stop := passive.beat(0) // alive all the time
	defer stop()
	c := followScripted(t, ClientOptions{SyncTimeout: 8 * time.Second}, passive, active)
	passive.ask()
	active.answer(3, pub{"k", 1, "v"})
	wantContents(t, c, 3, map[string]string{"k": "v"})
	asked := 1
	for {
		if _, err := passive.router.Recv(wake.Ended); err != nil {
			break
		}
		asked++
	}
	if asked > 2 {
		t.Errorf("the passive server was asked %d times", asked)
	}
}

// A server that cannot be reached costs no time if there is another.
func TestClientLeavesAnUnreachableServer(t *testing.T) {
	t.Parallel()
	gone, there := newScripted(t, asOurs), newScripted(t, asOurs)
	gone.close()
	c := followScripted(t, ClientOptions{}, gone, there)
	there.answer(3, pub{"k", 1, "v"})
	wantContents(t, c, 3, map[string]string{"k": "v"})
}

// An interrupted snapshot is asked for anew, and nothing of the first attempt is to
// be seen.
func TestClientAsksAnewAfterABrokenSnapshot(t *testing.T) {
	t.Parallel()
	first, second := newScripted(t, asOurs), newScripted(t, asOurs)
	c := followScripted(t, ClientOptions{}, first, second)
	id, _ := first.ask()
	first.kvsync(id, pub{"half", 1, "x"})
	first.close()
	second.answer(2, pub{"k", 1, "v"})
	wantContents(t, c, 2, map[string]string{"k": "v"})
	if c.Stats().Syncs != 1 {
		t.Errorf("%d snapshots", c.Stats().Syncs)
	}
	if _, err := c.SetSync(context.Background(), "", nil); !errors.Is(err, ErrEmptyValue) {
		t.Error(err)
	}
}
