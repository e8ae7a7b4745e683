package order

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/retain"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/testenv"
	"clustermap/internal/timer"
)

// This is a model of a pair and its clients, which come and go while servers fail. What decides
// is the real code: the sequencers, with their states, reigns and windows. The network, the disks
// and the election are the test's: any server may lead at any time, alone or beside the other one,
// updates may be held, replicated or not, and what a disk has not got is lost.
//
// The rule that it checks: a client that is told what it has missed has then exactly the map of
// the server that told it.

// modelBatch is a batch that a server has appended to its journal.
type modelBatch struct {
	state.Head
	wire []byte
}

func (b *modelBatch) spans() []buf.Span {
	spans, _ := kvmsg.SpansOf(b.wire, nil)
	return spans
}

// modelJournal remembers the batches. While it holds, they are not committed.
type modelJournal struct {
	journal.Memory
	batches   []modelBatch
	committed int
	holds     bool
}

func (j *modelJournal) AtOnce() bool { return !j.holds }

func (j *modelJournal) Append(h state.Head, pieces []store.Piece, _ int) journal.Index {
	b := modelBatch{Head: h}
	for _, p := range pieces {
		b.wire = append(b.wire, p.Wire()...)
	}
	j.batches = append(j.batches, b)
	if !j.holds {
		j.committed = len(j.batches)
	}
	return journal.Index(len(j.batches))
}

func (j *modelJournal) Committed(i journal.Index, _ int64) bool { return int(i) <= j.committed }

func (j *modelJournal) Save(_ context.Context, cut func() (*state.Image, journal.Index)) error {
	c, _ := cut()
	c.Release()
	return nil
}

// modelServer is one server of the pair.
type modelServer struct {
	nobody
	q       *Sequencer
	journal *modelJournal
	skew    int64 // of its clock, in milliseconds
	active  bool
	base    map[string]string // the map before the first batch of the journal
	at      int64             // its sequence
	terms   []state.Reign     // and terms
	sent    [][]byte          // published since the server became active
}

func (s *modelServer) SendSpans(_ context.Context, wire []byte, spans []buf.Span, _ hooks.Owner) error {
	n := 0
	for _, span := range spans {
		size := int(span.End - span.Start)
		s.sent = append(s.sent, slices.Clone(wire[n:n+size]))
		n += size
	}
	return nil
}

// modelClient is a client's replica.
type modelClient struct {
	of     *modelServer // nil between two sessions
	next   int          // in of.sent
	id     [ledger.MapIDSize]byte
	at     int64
	cut    int64
	last   int64
	values map[string]string
}

func (c *modelClient) apply(record []byte) {
	r := kvmsg.Record(record)
	if c.at = r.Seq(); len(r.Value()) == 0 {
		delete(c.values, string(r.Key()))
	} else {
		c.values[string(r.Key())] = string(r.Value())
	}
}

// claim is what the client says that it has.
func (c *modelClient) claim() int64 {
	if c.at == c.cut {
		return c.last
	}
	return c.at
}

type resumeModel struct {
	rng      *rand.Rand
	now      int64 // milliseconds
	servers  [2]*modelServer
	clients  []*modelClient
	number   int // of updates
	together bool
	resumed  int
	refused  int
	trace    []string
}

func (m *resumeModel) tell(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *resumeModel) clock(s *modelServer) int64 { return (m.now + s.skew) << 20 }

// start starts a server with the map and the batches that its disk has.
func (m *resumeModel) start(i int, id [ledger.MapIDSize]byte, base map[string]string, at int64, terms []state.Reign, disk []modelBatch) {
	s := &modelServer{journal: &modelJournal{}, skew: m.servers[i].skew, base: base, at: at, terms: terms}
	begin := state.New(m.clock(s))
	begin.ID = id
	last := int64(0)
	if at > 0 {
		begin.RestoreTerms(terms)
		var wire []byte
		for key, value := range base {
			wire = kvmsg.AppendRecord(wire, []byte(key), 1, nil, nil, []byte(value))
		}
		spans, _ := kvmsg.SpansOf(wire, nil)
		begin.RestoreRecords(wire, spans, timer.Now())
		last = at
	}
	w := new(retain.Window)
	w.Limit(retain.Options{Bytes: 48 << 10})
	w.Begin(&begin.Store, last, timer.Now())
	for _, b := range disk {
		out := begin.Apply(&state.Entry{Head: b.Head, Wire: b.wire, Spans: b.spans(), Stamped: true})
		w.Add(out.Pieces)
		s.journal.batches = append(s.journal.batches, b)
		last = b.Last()
	}
	s.journal.committed = len(disk)
	begin.SkipTo(state.Unused(last, m.clock(s)))
	s.q = new(Sequencer)
	s.q.Init(Options{Live: new(live.Map), State: begin, Journal: s.journal, Publisher: s, Window: w, EarlyTimeout: 1})
	m.servers[i] = s
}

// lose ends the sessions at a server.
func (m *resumeModel) lose(s *modelServer) {
	for _, c := range m.clients {
		if c.of == s {
			m.receive(c, m.rng.IntN(len(s.sent)-c.next+1))
			c.of = nil
		}
	}
	s.sent = nil
}

// receive lets a client receive some updates.
func (m *resumeModel) receive(c *modelClient, n int) {
	for range n {
		c.apply(c.of.sent[c.next])
		c.next++
	}
}

// content returns the map of a server.
func (s *modelServer) content() map[string]string {
	all := map[string]string{}
	c := s.q.Live().Cut()
	defer c.Release()
	c.Records(func(r kvmsg.Record) bool {
		all[string(r.Key())] = string(r.Value())
		return true
	})
	return all
}

// join lets a client follow a server, and checks what it has then.
func (m *resumeModel) join(t *testing.T, c *modelClient, s *modelServer) {
	past := s.q.Since(c.id, c.claim())
	switch {
	case c.id == [ledger.MapIDSize]byte{} || past.Tail == nil:
		if past.Tail != nil {
			past.Release()
		}
		cut := s.q.Live().Cut()
		c.values, c.id, c.at, c.last = s.content(), cut.ID, cut.Sequence, cut.Last
		cut.Release()
		m.refused++
	default:
		m.tell("a client with %d resumes after %d", c.at, c.claim())
		past.From(0, func(r kvmsg.Record, _ store.Position) bool {
			c.apply(r)
			return true
		})
		past.Release()
		c.at, c.last = past.Sequence, past.Last
		m.resumed++
		if want := s.content(); !maps.Equal(c.values, want) {
			t.Fatalf("a client that has resumed has %v, the server %v\n%s", c.values, want, strings.Join(m.trace, "\n"))
		}
	}
	c.cut = c.at
	c.of, c.next = s, len(s.sent)
}

// copyMap makes the passive server's map that of the active one.
func (m *resumeModel) copyMap(t *testing.T, passive, active *modelServer) {
	terms := active.q.state.Terms.History()
	c := passive.q.NewCopy(1, active.q.state.ID, terms)
	cut := active.q.Live().Cut()
	cut.Records(func(r kvmsg.Record) bool {
		wire := slices.Clone(r)
		spans, _ := kvmsg.SpansOf(wire, nil)
		c.Records(wire, spans)
		return true
	})
	cut.Release()
	passive.q.Surrender()
	if err := passive.q.Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	passive.base, passive.at, passive.terms = active.content(), terms[len(terms)-1].Last, terms
	passive.journal.batches, passive.journal.committed = nil, 0
}

// follow brings the passive server up to date, by a tail if it has a prefix of the active one's
// history, and otherwise by a copy.
func (m *resumeModel) follow(t *testing.T, passive, active *modelServer) {
	own := passive.q.order.reigns.Newest
	theirs := active.journal.batches[:active.journal.committed]
	from := -1
	if passive.q.state.ID == active.q.state.ID {
		if own == active.terms[len(active.terms)-1] {
			from = 0
		}
		for i, b := range theirs {
			if b.Reign == own.ID && b.Last() == own.Last {
				from = i + 1
			}
		}
	}
	if from < 0 {
		m.tell("server %d copies the map at %d", m.index(passive), active.q.state.Last())
		m.copyMap(t, passive, active)
		return
	}
	passive.q.Copies(1)
	passive.journal.holds = false
	passive.journal.committed = len(passive.journal.batches)
	for _, b := range theirs[from:] {
		if err := passive.q.Followed(b.Head, b.wire, b.spans()); err != nil {
			t.Fatalf("%v: %+v after %+v\n%s", err, b.Head, own, strings.Join(m.trace, "\n"))
		}
	}
}

func (m *resumeModel) index(s *modelServer) int { return slices.Index(m.servers[:], s) }

func (m *resumeModel) step(t *testing.T) {
	m.now += 10 * (1 + m.rng.Int64N(100))
	i := m.rng.IntN(2)
	s, other := m.servers[i], m.servers[1-i]
	switch k := m.rng.IntN(20); {
	case k < 8: // an update
		if !s.active {
			return
		}
		m.number++
		key, value := fmt.Sprint("/", m.rng.IntN(6)), fmt.Sprint(m.number)
		if m.rng.IntN(4) == 0 {
			value = ""
		} else if m.rng.IntN(3) == 0 {
			value += strings.Repeat("x", 4000)
		}
		wire := kvmsg.AppendRecord(nil, []byte(key), 0, nil, nil, []byte(value))
		size, tag, _, err := kvmsg.Inspect(wire, kvmsg.FromServer, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.q.mu.Lock()
		s.q.acceptNow(wire, []buf.Span{{End: uint32(size), Tag: tag}}, From{})
		s.q.mu.Unlock()
		m.tell("%d: server %d sets %s, published up to %d", m.number, i, key, s.q.state.Last())
	case k < 10: // the journal begins to hold, or commits
		if !s.active {
			return
		}
		if s.journal.holds = !s.journal.holds; !s.journal.holds {
			s.journal.committed = len(s.journal.batches)
			s.q.Committed()
		}
	case k < 13: // the passive server follows
		if s.active && !other.active {
			m.follow(t, other, s)
		}
	case k < 15: // a server leads; perhaps it has not heard that the other one does
		if s.active {
			return
		}
		m.tell("server %d leads", i)
		s.sent, s.active = nil, true
		s.journal.holds = false
		s.journal.committed = len(s.journal.batches)
		s.q.Lead(m.rng.Uint64N(2), false, m.clock(s), 0)
		if !m.together {
			m.yield(other)
		}
		m.together = m.rng.IntN(4) == 0
	case k < 16: // of two, one yields
		if s.active && other.active {
			m.yield(s)
		}
	case k < 17: // a server starts again, and its disk lacks some
		m.yield(s)
		b := s.journal.batches
		kept := len(b) - min(m.rng.IntN(4), len(b))
		m.tell("server %d starts with %d of %d batches", i, kept, len(b))
		m.start(i, s.q.state.ID, s.base, s.at, s.terms, b[:kept])
	default: // a client comes or goes, or receives
		c := m.clients[m.rng.IntN(len(m.clients))]
		switch {
		case c.of != nil && m.rng.IntN(2) == 0:
			m.receive(c, m.rng.IntN(len(c.of.sent)-c.next+1))
			c.of = nil
		case c.of != nil:
			m.receive(c, len(c.of.sent)-c.next)
			if want := c.of.content(); !maps.Equal(c.values, want) {
				t.Fatalf("a client has %v, the server %v\n%s", c.values, want, strings.Join(m.trace, "\n"))
			}
		case s.active:
			m.join(t, c, s)
		}
	}
}

func (m *resumeModel) yield(s *modelServer) {
	if s.active {
		m.tell("server %d yields", m.index(s))
		m.lose(s)
		s.active = false
		s.q.Yield()
		s.q.Wake()
	}
}

// TestResumeModel: see resumeModel.
func TestResumeModel(t *testing.T) {
	t.Parallel()
	seeds := 2000
	if testing.Short() || testenv.RaceDetector {
		seeds = 200
	}
	resumed, refused := 0, 0
	for seed := range seeds {
		m := &resumeModel{rng: rand.New(rand.NewPCG(uint64(seed), 1)), now: 100_000_000}
		for i := range m.servers {
			// Clocks that are right to the update would meet by chance in a model with so few.
			m.servers[i] = &modelServer{skew: []int64{0, 3600_000, -3600_000, 10_000}[m.rng.IntN(4)] + int64(i)}
		}
		for i := range m.servers {
			m.start(i, [ledger.MapIDSize]byte{byte(i + 1)}, nil, 0, []state.Reign{{}}, nil)
		}
		for range 3 {
			m.clients = append(m.clients, &modelClient{})
		}
		for range 150 {
			m.step(t)
		}
		resumed, refused = resumed+m.resumed, refused+m.refused
	}
	if resumed < seeds || refused < seeds {
		t.Errorf("clients have resumed %d times, and got a snapshot %d times: the model explores little", resumed, refused)
	}
	t.Logf("resumed %d times, %d snapshots", resumed, refused)
}
