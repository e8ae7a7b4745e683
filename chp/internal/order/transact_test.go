package order

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// steps is a journal that commits when the test says so, and keeps what it has committed.
type steps struct {
	journal.Memory
	atOnce    bool
	appended  []state.Entry
	committed int
}

func (j *steps) AtOnce() bool { return j.atOnce }

func (j *steps) Append(h state.Head, pieces []store.Piece, _ int) journal.Index {
	e := state.Entry{Head: h, Stamped: true}
	for _, p := range pieces {
		e.Wire = append(e.Wire, p.Wire()...)
	}
	e.Spans, _ = kvmsg.SpansOf(e.Wire, nil)
	j.appended = append(j.appended, e)
	if j.atOnce {
		j.committed = len(j.appended)
	}
	return journal.Index(len(j.appended))
}

func (j *steps) Committed(i journal.Index, _ int64) bool { return int(i) <= j.committed }

// world is a client with requests on their way, a server that judges them, and a model of the
// map: all updates in the order in which they were judged.
type world struct {
	t *testing.T
	r *rand.Rand
	q *Sequencer
	j *steps

	client ledger.ID
	number uint64
	mark   txn.Mark
	sent   []*asked // not answered yet
	log    []update // of the model
	script strings.Builder
}

type update struct {
	key, value string // no value: a deletion
	seq        int64
	number     uint64 // of the request; 0 for others
}

// asked is a request that was sent.
type asked struct {
	txn.Request
	sentTo *Sequencer // nil before it was sent
	when   int64      // its answer may be given when all up to this is published
	want   txn.Answer
}

func (w *world) begin(s *state.State, atOnce bool) {
	w.j = &steps{atOnce: atOnce}
	w.q = new(Sequencer)
	w.q.Init(Options{Live: new(live.Map), State: s, Journal: w.j, Publisher: nobody{}, Refused: func(error) {}})
}

// now returns the newest update of a key in the model.
func (w *world) now(key string) (now update) {
	for _, u := range w.log {
		if u.key == key {
			now = u
		}
	}
	if now.value == "" {
		return update{}
	}
	return now
}

func (w *world) key() string { return fmt.Sprint("k", w.r.IntN(4)) }

// propose makes a random request.
func (w *world) propose() *asked {
	w.number++
	a := &asked{Request: txn.Request{Number: w.number, Flags: byte(w.r.IntN(2)) * txn.FlagValue, Since: w.q.state.Last()}}
	for range w.r.IntN(3) {
		c := txn.Condition{Kind: txn.Kind(1 + w.r.IntN(4)), Key: []byte(w.key())}
		now := w.now(string(c.Key))
		if c.Sequence = now.seq; w.r.IntN(3) == 0 && len(w.log) > 0 {
			c.Sequence = w.log[w.r.IntN(len(w.log))].seq
		}
		if c.Value = []byte(now.value); w.r.IntN(3) == 0 {
			c.Value = []byte("none")
		}
		a.Conditions = c.Append(a.Conditions)
	}
	id := w.mark.UUID(a.Number)
	updates := w.r.IntN(4)
	for i := range updates {
		value := []byte(nil)
		if w.r.IntN(3) > 0 {
			value = fmt.Append(nil, "v", w.number, ".", i)
		}
		a.Updates = kvmsg.AppendRecord(a.Updates, []byte(w.key()), 0, id[:], txn.AppendMore(nil, updates-1-i), value)
	}
	return a
}

// judge is what the model says of a request.
func (w *world) judge(a *asked) {
	a.want = txn.Answer{Number: a.Number}
	if a.Flags&txn.FlagAgain != 0 {
		for _, u := range w.log {
			if u.number == a.Number {
				a.want.Sequence = u.seq // the last one's
			}
		}
		if a.want.Sequence != 0 {
			return
		}
	}
	var c txn.Condition
	for rest := a.Conditions; len(rest) > 0; a.want.Condition++ {
		rest, _ = c.Next(rest)
		now := w.now(string(c.Key))
		holds := map[txn.Kind]bool{
			txn.KindAbsent: now.value == "", txn.KindPresent: now.value != "", txn.KindSequence: now.seq == c.Sequence,
			txn.KindValue: now.value != "" && now.value == string(c.Value),
		}[c.Kind]
		if !holds {
			a.want.Status, a.want.Sequence = txn.StatusConflict, now.seq
			if now.value == "" {
				a.want.Status, a.want.Sequence = txn.StatusAbsent, w.last()
			}
			if a.Flags&txn.FlagValue != 0 && now.value != "" {
				a.want.Value, a.want.Has = []byte(now.value), true
			}
			return
		}
	}
	a.want.Condition = 0
	a.want.Sequence = w.last()
	for _, r := range a.Records() {
		a.want.Sequence++
		w.log = append(w.log, update{string(r.Key()), string(r.Value()), a.want.Sequence, a.Number})
	}
}

func (w *world) last() int64 {
	if len(w.log) == 0 {
		return 1
	}
	return w.log[len(w.log)-1].seq
}

// send has the server judge requests in one batch, and compares.
func (w *world) send(some []*asked) {
	var wire []byte
	var spans []buf.Span
	for _, a := range some {
		start := uint32(len(wire))
		wire = a.Append(wire)
		spans = append(spans, buf.Span{Start: start, End: uint32(len(wire))})
		if err := a.Check(0); err != nil {
			w.t.Fatal(err)
		}
		w.judge(a)
		fmt.Fprintf(&w.script, "request %d, flags %d, conditions %q: %+v\n", a.Number, a.Flags, a.Conditions, a.want)
	}
	w.q.mu.Lock()
	answers, done := w.q.transact(wire, spans, From{ID: w.client, Numbered: true}, math.MaxInt, nil)
	last := w.q.written().Last
	w.q.mu.Unlock()
	if done != len(spans) {
		w.t.Fatalf("%d of %d requests were judged", done, len(spans))
	}
	var got txn.Answer
	for _, a := range some {
		var ok bool
		if answers, ok = got.Next(answers); !ok {
			w.t.Fatal("an answer is missing")
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", a.want) {
			w.t.Fatalf("answer %+v, want %+v\n%s", got, a.want, w.script.String())
		}
		a.sentTo, a.when = w.q, last
	}
}

// answered removes the requests whose answers the client has.
func (w *world) answered(some bool) {
	kept := w.sent[:0]
	for _, a := range w.sent {
		if a.sentTo != w.q || a.when > w.q.state.Last() || some && w.r.IntN(2) == 0 {
			kept = append(kept, a)
		}
	}
	w.sent = kept
}

// crash ends the server. The next one has what was committed, by way of the log or, if image is
// set, of a whole map.
func (w *world) crash(base *state.State, image bool) *state.State {
	for _, e := range w.j.appended[:w.j.committed] {
		base.Apply(&e)
	}
	kept := w.log[:0]
	for _, u := range w.log {
		if u.seq <= base.Last() {
			kept = append(kept, u)
		}
	}
	w.log = kept
	fmt.Fprintf(&w.script, "crash after %d\n", base.Last())
	if image {
		next, of := state.New(0), base.Image()
		for s := range of.Sections(200) {
			if err := next.Restore(s, timer.Now()); err != nil {
				w.t.Fatal(err)
			}
		}
		of.Release()
		next.SkipTo(base.Last())
		base = next
	}
	return base
}

// copyOf returns a state with what another one has.
func (w *world) copyOf(s *state.State) *state.State {
	next, of := state.New(0), s.Image()
	defer of.Release()
	for p := range of.Sections(1 << 16) {
		if err := next.Restore(p, timer.Now()); err != nil {
			w.t.Fatal(err)
		}
	}
	next.SkipTo(s.Last())
	return next
}

// Whatever the order of requests, other updates, commits, answers that are lost and servers that
// end, each request is judged on all updates before it, and made once or not at all.
func TestTransactionsLikeTheModel(t *testing.T) {
	t.Parallel()
	seeds := 1000
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		w := &world{t: t, r: r, client: ledger.ID{1}, mark: txn.NewMark()}
		fmt.Fprintf(&w.script, "seed %d\n", seed)
		base := state.New(1)
		w.begin(w.copyOf(base), r.IntN(3) == 0)
		for range 60 {
			switch r.IntN(8) {
			case 0, 1, 2:
				var some []*asked
				for range 1 + r.IntN(4) {
					some = append(some, w.propose())
				}
				w.sent = append(w.sent, some...)
				w.send(some)
			case 3: // an update without conditions
				wire := kvmsg.AppendRecord(nil, []byte(w.key()), 0, nil, nil, fmt.Append(nil, "p", len(w.log))[:r.IntN(2)*2])
				spans, _ := kvmsg.SpansOf(wire, nil)
				u := update{string(kvmsg.Record(wire).Key()), string(kvmsg.Record(wire).Value()), w.last() + 1, 0}
				w.log = append(w.log, u)
				fmt.Fprintf(&w.script, "update %+v\n", u)
				w.q.mu.Lock()
				w.q.acceptNow(wire, spans, From{})
				w.q.mu.Unlock()
			case 4, 5:
				w.j.committed = min(w.j.committed+1+r.IntN(3), len(w.j.appended))
				w.q.Committed()
			case 6:
				w.answered(true)
			case 7:
				if r.IntN(2) == 0 { // the connection ends; all is sent again
					for _, a := range w.sent {
						a.Flags |= txn.FlagAgain
					}
				} else {
					base = w.crash(base, r.IntN(2) == 0)
					for _, a := range w.sent {
						if a.sentTo != nil {
							a.Flags |= txn.FlagAgain
						}
					}
					w.begin(w.copyOf(base), r.IntN(3) == 0)
				}
				for rest := w.sent; len(rest) > 0; {
					n := 1 + r.IntN(len(rest))
					w.send(rest[:n])
					rest = rest[n:]
				}
			}
		}
		w.j.committed = len(w.j.appended)
		w.q.Committed()
		for i := range 4 {
			key := fmt.Sprint("k", i)
			value, seq, ok := w.q.state.Store.Get([]byte(key), nil)
			if now := w.now(key); ok != (now.value != "") || ok && (seq != now.seq || string(value) != now.value) {
				t.Fatalf("%s is %q, %d, want %+v\n%s", key, value, seq, now, w.script.String())
			}
		}
		if len(w.q.held.newest) != 0 {
			t.Fatalf("%d keys are remembered as held\n%s", len(w.q.held.newest), w.script.String())
		}
	}
}

// A request that was sent to this server before it was passive, and that the other one made
// meanwhile, is not judged when it comes late: it does not say that it was sent again.
func TestLateRequestOfAFormerTermIsNotJudged(t *testing.T) {
	t.Parallel()
	w := &world{t: t, r: rand.New(rand.NewPCG(1, 1)), client: ledger.ID{1}, mark: txn.NewMark()}
	s := state.New(1)
	w.begin(s, true)
	id := w.mark.UUID(1)
	wire := (&txn.Request{Number: 1, Updates: kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], nil, []byte("v"))}).Append(nil)
	// deliver has the request come over a connection that began in a term.
	deliver := func(term uint64) (judged bool) {
		w.q.mu.Lock()
		defer w.q.mu.Unlock()
		from := From{ID: w.client, Numbered: true, Term: term}
		if w.q.judges(from) {
			w.q.transact(wire, []buf.Span{{End: uint32(len(wire))}}, from, math.MaxInt, nil)
			return true
		}
		return false
	}
	before := w.q.Term()
	w.q.Yield()
	if deliver(before) {
		t.Error("a passive server judges")
	}
	// The other one makes it.
	made := kvmsg.AppendRecord(nil, []byte("k"), s.Last()+1, id[:], nil, []byte("v"))
	spans, _ := kvmsg.SpansOf(made, nil)
	reign := s.Terms.Newest.ID + 1
	if err := w.q.Followed(state.Head{First: s.Last() + 1, Reign: reign, Client: w.client}, made, spans); err != nil {
		t.Fatal(err)
	}
	w.q.Lead(0, false, 0, 0)
	last := s.Last()
	if deliver(before); s.Last() != last {
		t.Errorf("made a second time: sequence %d after %d", s.Last(), last)
	}
	if !deliver(w.q.Term()) {
		t.Error("a request of the present term is not judged")
	}
}

// A server that has forgotten clients since a request was sent first cannot know whether it was made.
func TestForgottenRequestIsUnknown(t *testing.T) {
	t.Parallel()
	w := &world{t: t, r: rand.New(rand.NewPCG(1, 1)), client: ledger.ID{1}, mark: txn.NewMark()}
	s := state.New(1)
	w.begin(s, true)
	id := w.mark.UUID(1)
	request := func(since int64) txn.Status {
		wire := (&txn.Request{
			Number: 1, Since: since, Flags: txn.FlagAgain, Updates: kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], nil, []byte("v")),
		}).Append(nil)
		w.q.mu.Lock()
		defer w.q.mu.Unlock()
		answers, _ := w.q.transact(wire, []buf.Span{{End: uint32(len(wire))}}, From{ID: w.client, Numbered: true}, math.MaxInt, nil)
		var a txn.Answer
		a.Next(answers)
		return a.Status
	}
	if got := request(1); got != txn.StatusMade {
		t.Fatal(got)
	}
	made := s.Last()
	for i := range 1<<16 + 1 { // more clients than a server remembers
		var other ledger.ID
		binary.BigEndian.PutUint64(other[:], uint64(i)+1<<40)
		s.Clients.Make(other, 1, made+1+int64(i))
	}
	if got := request(1); got != txn.StatusUnknown {
		t.Error(got)
	}
	if got := request(made + 1<<17); got != txn.StatusMade {
		t.Error(got)
	}
}
