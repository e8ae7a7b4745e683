package member

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/journal/disk"
	"clustermap/chp/internal/journal/raft"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// Options are what a member needs of its server.
type Options struct {
	Order       *order.Sequencer
	Journal     *raft.Journal
	ID          [ledger.MapIDSize]byte // for a map that has none
	ExpiryGrace time.Duration

	Answer  func(ctx context.Context, peer *sockets.Peer, want wire.Want) error // answers a request for the map
	Share   func(by string) *order.Share                                        // what somebody may add, or nil if that is not bounded
	Dismiss func(reason error, ours bool)                                       // disconnects all clients, or those that send again what they have no answer for
	Log     *slog.Logger
}

// Member is the part of a server that belongs to a cluster.
type Member struct {
	o        Options
	node     raft.Node
	attached chan struct{} // closed when node is set
	relay    *relay
	orders   *orders
	asks     asks
	failed   chan struct{} // closed when err is set

	spans []buf.Span // scratch of Committed

	serves atomic.Bool // see Serves

	mu     sync.Mutex
	status raft.Status
	led    time.Time // when a leader was last known
	leader uint64    // the last one that was
	hears  bool      // that is not long ago
	lapses int       // how often that has ended
	err    error
}

var _ raft.Owner = (*Member)(nil)

// errLed and errLeaderless are the reasons for disconnecting clients.
var (
	errLed        = errors.New("chp: this node of the cluster no longer leads")
	errLeaderless = errors.New("chp: this node of the cluster hears no leader")
	errRemoved    = errors.New("this node was removed from its cluster: neither its number nor its directory can be used again")
	errReplaced   = errors.New("chp: the map of this node was replaced by a newer one")
)

// New returns a member without a node.
func New(o Options) *Member {
	m := &Member{o: o, attached: make(chan struct{}), failed: make(chan struct{}), led: time.Now()}
	m.relay = newRelay(m.tell, o.Order.Undecided)
	m.orders = newOrders(m)
	m.asks.init()
	return m
}

// Attach sets the node, whose owner the member is.
func (m *Member) Attach(n raft.Node) {
	m.node = n
	m.o.Journal.Attach(n)
	close(m.attached)
}

// Node returns the node.
func (m *Member) Node() raft.Node { return m.node }

// tell sends a note to a member, also this one.
func (m *Member) tell(to uint64, note []byte) bool {
	if to != m.node.Status().Node {
		return m.node.Tell(to, note)
	}
	m.Note(to, note)
	return true
}

// Note takes a note of another member.
func (m *Member) Note(from uint64, note []byte) {
	kind, p, rest, ok := parsePlace(note)
	switch {
	case !ok:
	case kind == noteItem:
		m.orders.take(from, p, rest)
	case kind == noteAnswer:
		m.relay.answered(p, rest)
	}
}

// Committed puts entries into the map.
func (m *Member) Committed(all []raft.Entry) {
	for i := range all {
		e := &all[i]
		if id, after, ok := disk.NameOf(&e.Entry); ok {
			if m.o.Order.Name(id, after) {
				m.lead()
			}
			continue
		}
		if e.Own && m.o.Order.Own(journal.Index(e.Index)) {
			continue
		}
		b, err := disk.Parse(&e.Entry, m.spans)
		if err == nil && len(b.Spans) > 0 {
			m.spans = b.Spans
			if m.serves.Load() {
				b.Heard = timer.Now() // the leader's wall clock may be wrong
			}
			err = m.o.Order.Foreign(&b, journal.Index(e.Index))
		}
		if err != nil {
			m.fail(fmt.Errorf("entry %d of the cluster: %w", e.Index, err))
			return
		}
		if !e.Own {
			m.o.Journal.Grow(len(e.Records))
		}
	}
}

// fail makes an error permanent: this node has another map than the others.
func (m *Member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = fmt.Errorf("chp: %w", err)
		close(m.failed)
	}
}

// Failed returns a channel that is closed when Err is set.
func (m *Member) Failed() <-chan struct{} { return m.failed }

// Err returns why the map of this node cannot follow the others, or nil.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Lost says that what was ordered here and not committed is lost.
func (m *Member) Lost(_ int, known bool) { m.o.Order.LostAll(known) }

// Changed says who leads.
func (m *Member) Changed(s raft.Status) {
	<-m.attached
	m.mu.Lock()
	before, former := m.status, m.leader
	m.status = s
	if s.Leader != 0 {
		m.led, m.leader = time.Now(), s.Leader
	}
	m.mu.Unlock()
	if s.Leading {
		m.lead()
	} else if m.o.Order.EndTerm() {
		m.o.Dismiss(errLed, true)
	}
	leader := s.Leader
	if leader == s.Node && !s.Leading { // not yet, or no longer
		leader = 0
	}
	m.relay.led(leader, s.Term)
	if s.Leader != 0 && former != 0 && s.Leader != former {
		m.o.Log.Warn("another node leads the cluster", "node", s.Node, "term", s.Term, "leader", s.Leader, "former", former)
	} else if s.Leading != before.Leading || s.Leader != before.Leader {
		m.o.Log.Info("cluster", "node", s.Node, "role", s.Role, "term", s.Term, "leader", s.Leader)
	}
}

// lead orders updates, if this node leads.
func (m *Member) lead() {
	if s := m.Status(); s.Leading {
		m.o.Order.LeadTerm(s.Term, m.o.ID, order.FirstSequence(time.Now()), len(m.node.Members()) == 1, m.o.ExpiryGrace)
	}
}

// Status returns who leads, as the map of this node has it.
func (m *Member) Status() raft.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Resend takes updates without a number that were ordered here and are lost.
func (m *Member) Resend(records []byte) { m.relay.resend(records) }

// image is a copy of the state.
type image struct{ *state.Image }

func (i image) Sequence() uint64                { return uint64(i.Image.Sequence) }
func (i image) Entries() iter.Seq[commit.Entry] { return disk.Sections(i.Image) }

// Image returns a copy of the map.
func (m *Member) Image() (raft.Image, error) {
	var i image
	m.o.Order.Between(func(now *order.Moment) { i.Image = now.State.Image() })
	return i, nil
}

// Restore replaces the map.
func (m *Member) Restore(s raft.Snapshot) error {
	to := m.o.Order.Empty()
	at := time.Duration(0)
	select {
	case <-m.attached: // it comes from the leader
		at = timer.Now()
	default: // it is of the disk
	}
	r := disk.NewRestorer(to, at)
	if err := s.Entries(r.Entry); err != nil {
		return err
	}
	to.SkipTo(int64(s.Sequence()))
	m.o.Order.Replace(to)
	m.o.Dismiss(errReplaced, false)
	return nil
}

// Index returns when the map of this node has all that was committed before the call.
func (m *Member) Index(ctx context.Context) error { return m.node.ReadIndex(ctx) }

// Confirm reports whether this node led in a term after the call, also in the eyes of a majority.
func (m *Member) Confirm(ctx context.Context, term uint64) (bool, error) {
	if err := m.node.ReadIndex(ctx); err != nil {
		return false, err
	}
	return m.elected(term), nil
}

// elected reports whether this node leads in a term, or is about to: it may not have all that came before yet.
func (m *Member) elected(term uint64) bool {
	s := m.node.Status()
	return s.Leader == s.Node && s.Term == term
}

// Run does what a member does by itself, until the context ends.
func (m *Member) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { m.relay.runSending(ctx) })
	wg.Go(func() { m.relay.runFinishing(ctx, m.o.Order.Shown) })
	wg.Go(func() { m.orders.runOrdering(ctx) })
	wg.Go(func() { m.orders.runAnswering(ctx) })
	wg.Go(func() { m.runAsks(ctx) })
	wg.Go(func() { m.look(ctx) })
	wg.Go(func() { m.catchUp(ctx) })
	wg.Wait()
}

// missing says which members a node does not hear, and since when.
func missing(all []raft.Member, id uint64) string {
	var who []string
	for _, o := range all {
		switch name := fmt.Sprintf("node %d at %s", o.Node, o.Address); {
		case o.Node == id || o.Silence >= 0 && o.Silence < leaderless/2:
		case o.Silence < 0:
			who = append(who, name+" since the start of this one")
		default:
			who = append(who, fmt.Sprintf("%s for %v", name, o.Silence.Round(100*time.Millisecond)))
		}
	}
	if len(who) == 0 {
		return "none: the nodes hear each other, and elect no leader"
	}
	return strings.Join(who, ", ")
}

// look makes clients find another node while this one hears no leader.
func (m *Member) look(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	listed := false // among the members
	for {
		id := m.node.Status().Node
		was := listed
		listed = slices.ContainsFunc(m.node.Members(), func(o raft.Member) bool { return o.Node == id })
		if was && !listed {
			m.fail(errRemoved)
		}
		m.mu.Lock()
		now := time.Now()
		if m.status.Leader != 0 {
			m.led = now
		}
		before := m.hears
		m.hears = now.Sub(m.led) < leaderless
		hears := m.hears
		if before && !hears {
			m.lapses++
			m.serves.Store(false)
		}
		m.mu.Unlock()
		if hears != before {
			m.o.Order.Serve(hears)
			if !hears {
				m.o.Log.Warn("this node hears no leader: no majority of the cluster can be reached", "for", leaderless, "missing", missing(m.node.Members(), id))
				m.o.Dismiss(errLeaderless, false)
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// catchUp finds out when this node has all that was committed before it heard the leader: until then it may have an old map, or none.
func (m *Member) catchUp(ctx context.Context) {
	for {
		m.mu.Lock()
		ask, lapses := m.hears && m.status.Leader != 0 && !m.serves.Load(), m.lapses
		m.mu.Unlock()
		if ask && m.Index(ctx) == nil && m.o.Order.Named() {
			m.mu.Lock()
			m.serves.Store(m.hears && m.lapses == lapses)
			m.mu.Unlock()
		}
		if !wake.Pause(ctx, lookEvery) {
			return
		}
	}
}

// Serves reports whether this node hears a leader, and has had all that was committed since: what it reads is behind by no more
// than what is on its way, and what it writes is relayed.
func (m *Member) Serves() bool { return m.serves.Load() }

// Relays reports whether what clients send has to be relayed: this node does not lead, or something that was relayed
// before has no answer yet.
func (m *Member) Relays() bool { return m.o.Order.Follows() || m.relay.busy() }

// Updates relays updates of a client. done is called when this node has them in its map, with those that the map has no
// room for, and whether some had come before. The error is that of the context.
func (m *Member) Updates(ctx context.Context, records []byte, spans []buf.Span, from order.From, done func(repeated bool, records []byte, unfit []buf.Span)) error {
	if err := m.relay.wait(ctx); err != nil {
		return err
	}
	m.relay.updates(records, spans, from, done)
	return nil
}

// Requests relays requests of a client. done gets their answers, unless lost is called: then the client has to send them
// again. The error is that of the context.
func (m *Member) Requests(ctx context.Context, messages []byte, spans []buf.Span, from order.From, done func(answers []byte), lost func()) error {
	if err := m.relay.wait(ctx); err != nil {
		return err
	}
	m.relay.requestsOf(messages, spans, from, done, lost)
	return nil
}

// Leases relays a question about leases, also at the leader: an answer needs a majority. done gets the answers.
func (m *Member) Leases(kind wire.LeaseKind, ids []kvmsg.LeaseID, done func(left []time.Duration)) {
	m.relay.leases(kind, ids, done)
}
