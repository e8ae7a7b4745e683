package partner

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// nobody is a publisher without subscribers.
type nobody struct{}

func (nobody) SendSpans(context.Context, []byte, []buf.Span, hooks.Owner) error { return nil }
func (nobody) Heartbeat(int64)                                                  {}

// stuck is a journal that commits nothing.
type stuck struct{ journal.Journal }

func (stuck) AtOnce() bool                        { return false }
func (stuck) Committed(journal.Index, int64) bool { return false }

// unsaved is a journal that does not store a map once its time is over.
type unsaved struct{ journal.Journal }

func (u unsaved) Save(ctx context.Context, cut func() (*state.Image, journal.Index)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return u.Journal.Save(ctx, cut)
}

// newCopier returns the passive side of a server, with its sequencer.
func newCopier(t testing.TB) (*copier, *order.Sequencer) {
	t.Helper()
	q := new(order.Sequencer)
	q.Init(order.Options{Live: new(live.Map), State: state.New(0), Journal: journal.Memory{}, Publisher: nobody{}, EarlyTimeout: time.Second})
	t.Cleanup(q.Shut)
	return &copier{heard: func() uint64 { return 0 }, Options: &Options{
		Order: q, Log: slog.New(slog.DiscardHandler), PeerSecurity: func() sockets.Security { return sockets.Security{} },
		Diverged: func(Divergence) error { return nil },
	}}, q
}

// newBase returns an empty map of another server.
func newBase(q *order.Sequencer, newest state.Reign) *base {
	h := baseHead{mapID: [ledger.MapIDSize]byte{1}, reigns: []state.Reign{newest}}
	return &base{h, q.NewCopy(1, h.mapID, h.reigns)}
}

// enterKey sets a key of a passive server, in another reign of the active one.
func enterKey(t testing.TB, q *order.Sequencer, key string) {
	t.Helper()
	wire := kvmsg.AppendRecord(nil, []byte(key), 0, nil, nil, []byte("v"))
	spans, ok := kvmsg.SpansOf(wire, nil)
	if !ok {
		t.Fatal("not a record")
	}
	now := q.Live().Now()
	h := state.Head{Reign: now.Terms.Newest.ID + 1<<state.ReignBits, First: now.Last() + 1, Count: 1}
	kvmsg.Record(wire).SetSeq(h.First)
	testenv.Must(t, q.Followed(h, wire, spans))
}

// TestPairKeepsNewerMap: a server does not replace its map by an older one, though the server
// that has that is active, and the map arrives before its state.
func TestPairKeepsNewerMap(t *testing.T) {
	t.Parallel()
	c, _ := newCopier(t)
	has := []state.Reign{{ID: 1 << state.ReignBits, Last: 10}, {ID: 2 << state.ReignBits, Last: 20}}
	testenv.Must(t, c.Order.Install(t.Context(), c.Order.NewCopy(1, [ledger.MapIDSize]byte{1}, has)))
	for _, v := range []struct {
		what  string
		has   []state.Reign
		keeps bool
	}{
		{"the same", has, false},
		{"more", append(slices.Clone(has), state.Reign{ID: 3 << state.ReignBits, Last: 30}), false},
		{"an earlier state", has[:1], true},
		{"an earlier state, and expired keys", []state.Reign{{ID: 1 << state.ReignBits, Last: 10}, {ID: 1<<state.ReignBits + 5, Last: 90}}, true},
		{"less of the reign", []state.Reign{{ID: 1 << state.ReignBits, Last: 10}, {ID: 2 << state.ReignBits, Last: 19}}, true},
		{"nothing", []state.Reign{{}}, true},
	} {
		if got := c.outranks(&baseHead{reigns: v.has}); got != v.keeps {
			t.Errorf("a map that is %s: kept %v", v.what, got)
		}
	}
}

// TestPairReportsOnce: a divergence is reported once, however often the copy fails, unless the
// report itself fails.
func TestPairReportsOnce(t *testing.T) {
	t.Parallel()
	c, q := newCopier(t)
	reports := 0
	var full error
	c.Diverged = func(Divergence) error { reports++; return full }
	enterKey(t, q, "/lost")
	h := baseHead{mapID: q.Live().Now().ID, reigns: []state.Reign{{ID: 5, Last: 1}}}
	for range 3 {
		testenv.Must(t, c.reportDivergence(&h))
	}
	if reports != 1 {
		t.Errorf("%d reports, want 1", reports)
	}
	enterKey(t, q, "/lost/2")
	testenv.Must(t, c.reportDivergence(&h))
	if reports != 2 {
		t.Errorf("%d reports, want 2", reports)
	}
	enterKey(t, q, "/lost/3")
	full = errors.New("full")
	for range 2 {
		if err := c.reportDivergence(&h); !errors.Is(err, full) {
			t.Errorf("the report fails with %v, not %v", full, err)
		}
	}
	full = nil
	testenv.Must(t, c.reportDivergence(&h))
	if reports != 5 {
		t.Errorf("%d reports, want 5", reports)
	}
}

// TestPairYieldedUpdatesAreReported: updates that a server held when it yielded, and that the
// other one's map does not have, are reported when that replaces its own.
func TestPairYieldedUpdatesAreReported(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	c, q := newCopier(t)
	var lost []string
	c.Diverged = func(d Divergence) error {
		d.Cut.Records(func(r kvmsg.Record) bool {
			lost = append(lost, string(r.Key()))
			return true
		})
		return nil
	}
	q.Lead(0, false, 0, -1)
	q.Wrap(func(j journal.Journal) journal.Journal { return stuck{j} })
	var local order.Local
	local.Init(q, order.NewPacer(-1, func() float64 { return 0 }))
	wire := kvmsg.AppendRecord(nil, []byte("/held"), 0, nil, nil, []byte("v"))
	spans, _ := kvmsg.SpansOf(wire, nil)
	_, _, err := local.Apply(ctx, wire, spans)
	testenv.Must(t, err)
	q.Yield()
	testenv.Must(t, c.install(ctx, newBase(q, state.Reign{ID: 9 << state.ReignBits, Last: 5})))
	if !slices.Equal(lost, []string{"/held"}) || q.Live().Now().Store.Len() != 0 {
		t.Errorf("reported %q, %d keys are left", lost, q.Live().Now().Store.Len())
	}
}

// TestPairCopyThatIsNotKept: a map that the log does not take is not the server's, so
// that the log never has updates of one map on top of another one.
func TestPairCopyThatIsNotKept(t *testing.T) {
	t.Parallel()
	c, q := newCopier(t)
	q.Wrap(func(j journal.Journal) journal.Journal { return unsaved{j} })
	before := q.Live().Now().ID
	b := newBase(q, state.Reign{ID: 1, Last: 5})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.install(over, b); err == nil {
		t.Error("the copy was kept without the log")
	}
	if q.Live().Now().ID != before || c.copied.Load() {
		t.Error("the server has a map that its log does not have")
	}
	testenv.Must(t, c.install(t.Context(), b))
	if q.Live().Now().ID != b.mapID || q.Live().Now().Last() != 5 || !c.copied.Load() {
		t.Error("the copy is not installed")
	}
}

// A server does not follow one that speaks a newer version of the pair's protocol.
func TestPairDoesNotFollowNewer(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]error{"2": commit.ErrFormat, "x": errFollower} {
		ctx := testenv.Context(t)
		router, err := sockets.NewRouter(sockets.Options{Metadata: map[string]string{"X-CHP": "clustermap/1", propertyPeer: version}})
		testenv.Must(t, err)
		t.Cleanup(func() { testenv.Must(t, router.Close()) })
		testenv.Must(t, router.Bind(ctx, "tcp://127.0.0.1:*"))
		c, _ := newCopier(t)
		c.Peer, c.Timeout = router.LastEndpoint(), testenv.Hang
		f := &follower{copier: c}
		if err := f.run(ctx, context.Background()); !errors.Is(err, want) {
			t.Errorf("version %q: %v", version, err)
		}
	}
}
