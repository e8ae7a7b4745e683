package member

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal/raft"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// keys is the number of keys of a run: of six clients, of three processes, and of what those count.
const keys = 10

var modelRuns = flag.Int("runs", 0, "runs of the model")

// world is a cluster of three members whose log is here, and whose notes get lost.
type world struct {
	t *testing.T

	mu        sync.Mutex
	r         *rand.Rand
	log       []commit.Entry
	committed int // entries
	term      uint64
	leader    uint64 // 0 while there is none
	nodes     [3]*node
	members   []raft.Member
	loss      float64
}

// node is a member with its part of the log.
type node struct {
	w      *world
	id     uint64
	member *Member
	order  *order.Sequencer
	local  order.Local // of its process
	tasks  chan func()
	told   raft.Status
	own    []raft.Entry  // proposals whose fate is open
	given  int           // entries that are on their way to the owner
	has    int           // that it has
	arrive [4]time.Time  // of the last note to each node
	behind time.Duration // the wall clock of its machine
}

// nobody gets what is published.
type nobody struct{}

func (nobody) SendSpans(context.Context, []byte, []buf.Span, hooks.Owner) error { return nil }
func (nobody) Heartbeat(int64)                                                  {}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 0)), term: 1}
	for i := range w.nodes {
		n := &node{w: w, id: uint64(i + 1), order: new(order.Sequencer), tasks: make(chan func(), 1<<16)}
		j := new(raft.Journal)
		n.member = New(Options{
			Share: func(string) *order.Share { return nil }, Order: n.order, Journal: j, ID: [ledger.MapIDSize]byte{byte(i + 1)}, Log: slog.New(slog.DiscardHandler), ExpiryGrace: -1,
			Answer:  func(context.Context, *sockets.Peer, wire.Want) error { return nil },
			Dismiss: func(error, bool) {},
		})
		s := state.New(0)
		s.Leases = state.NewLeases()
		n.order.Init(order.Options{State: s, Live: new(live.Map), Journal: j, Publisher: nobody{}, Refused: func(error) {}, Cluster: true, Resend: n.member.Resend})
		n.local.Init(n.order, order.NewPacer(-1, func() float64 { return 0 }))
		n.local.Elsewhere = n.member
		n.member.Attach(n)
		w.nodes[i] = n
		w.members = append(w.members, raft.Member{Node: n.id})
	}
	return w
}

// give lets the owner have entries that are committed, after a while. w.mu is held.
func (n *node) give() {
	if n.given == n.w.committed {
		return
	}
	var all []raft.Entry
	lost := 0
	pass := func() {
		if len(all) > 0 || lost > 0 {
			all, lost := all, lost
			n.tasks <- func() {
				if len(all) > 0 {
					n.member.Committed(all)
				}
				if lost > 0 {
					n.member.Lost(lost, true)
				}
			}
		}
		all, lost = nil, 0
	}
	for ; n.given < n.w.committed; n.given++ {
		e := raft.Entry{Entry: n.w.log[n.given]}
		for len(n.own) > 0 && !e.Own {
			if first := n.own[0]; first.Index == e.Index && first.Epoch == e.Epoch {
				e.Own = true
			} else if first.Index > e.Index && first.Epoch >= e.Epoch {
				break
			} else {
				lost++
			}
			n.own = n.own[1:]
		}
		if lost > 0 {
			pass()
		}
		if e.Kind != noEntry {
			all = append(all, e)
		}
	}
	pass()
	upTo := n.given
	n.tasks <- func() {
		n.w.mu.Lock()
		n.has = upTo
		n.w.tell()
		n.w.mu.Unlock()
	}
}

// noEntry is the kind of the first entry of a term.
const noEntry = 1 << 16

// status is that of a node. w.mu is held.
func (n *node) status() raft.Status {
	s := raft.Status{Node: n.id, Term: n.w.term, Role: "follower", Leader: n.w.leader}
	if n.w.leader == n.id {
		begun := slices.IndexFunc(n.w.log, func(e commit.Entry) bool { return e.Epoch == n.w.term })
		s.Role, s.Leading = "leader", begun >= 0 && n.has > begun
	}
	return s
}

// tell tells members who leads. w.mu is held.
func (w *world) tell() {
	for _, n := range w.nodes {
		if s := n.status(); s != n.told {
			n.told = s
			n.tasks <- func() { n.member.Changed(s) }
		}
	}
}

// elect makes a node lead, with some of what is not committed. w.mu is held.
func (w *world) elect(id uint64) {
	kept := w.committed + w.r.IntN(len(w.log)-w.committed+1)
	w.log = w.log[:kept]
	w.term++
	w.leader = id
	w.log = append(w.log, commit.Entry{Index: uint64(len(w.log) + 1), Epoch: w.term, Kind: noEntry})
	w.tell()
}

// commit commits some entries. w.mu is held.
func (w *world) commit() {
	if w.leader != 0 {
		w.committed += w.r.IntN(len(w.log) - w.committed + 1)
	}
	for _, n := range w.nodes {
		if w.r.IntN(2) == 0 {
			n.give()
		}
	}
}

var errNotLeader = errors.New("not the leader")

func (n *node) Propose(term uint64, e *commit.Entry) (uint64, error) {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leader != n.id || w.term != term || !n.told.Leading {
		return 0, errNotLeader
	}
	own := *e
	own.Records, own.Parts = slices.Concat(append([][]byte{e.Records}, e.Parts...)...), nil
	own.Index, own.Epoch = uint64(len(w.log)+1), term
	own.Time -= int64(n.behind)
	w.log = append(w.log, own)
	n.own = append(n.own, raft.Entry{Entry: own})
	return own.Index, nil
}

func (n *node) ReadIndex(ctx context.Context) error {
	n.w.mu.Lock()
	want := n.w.committed
	n.w.mu.Unlock()
	for {
		n.w.mu.Lock()
		done := n.has >= want && n.w.leader != 0
		n.w.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *node) Tell(to uint64, note []byte) bool {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.r.Float64() < w.loss {
		return w.r.IntN(2) == 0
	}
	at := time.Now().Add(time.Duration(w.r.IntN(3000)) * time.Microsecond)
	if !at.After(n.arrive[to]) {
		at = n.arrive[to].Add(time.Microsecond)
	}
	n.arrive[to] = at
	note = bytes.Clone(note)
	time.AfterFunc(time.Until(at), func() { w.nodes[to-1].member.Note(n.id, note) })
	return true
}

func (n *node) Status() raft.Status {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.status()
}

func (n *node) Members() []raft.Member {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.w.members
}

func (n *node) Room(context.Context) error                       { return nil }
func (n *node) Save(context.Context) error                       { return nil }
func (n *node) AddLearner(context.Context, uint64, string) error { return nil }
func (n *node) Promote(context.Context, uint64) error            { return nil }
func (n *node) Remove(context.Context, uint64) error             { return nil }
func (n *node) Transfer(context.Context, uint64) error           { return nil }
func (n *node) Failed() <-chan struct{}                          { return nil }
func (n *node) Close() error                                     { return nil }

// apply calls the owner, late.
func (n *node) apply(ctx context.Context) {
	for {
		select {
		case do := <-n.tasks:
			n.w.mu.Lock()
			late := time.Duration(n.w.r.IntN(2000)) * time.Microsecond
			n.w.mu.Unlock()
			time.Sleep(late)
			do()
		case <-ctx.Done():
			return
		}
	}
}

// update returns an update in wire form.
func update(key string, number uint64) []byte {
	id := make([]byte, kvmsg.UUIDSize)
	copy(id, key)
	binary.BigEndian.PutUint64(id[8:], number)
	return kvmsg.AppendRecord(nil, []byte(key), int64(number), id, nil, binary.BigEndian.AppendUint64(nil, number))
}

// TestRelayAppliesOnce lets clients send updates to nodes that do not lead while notes get lost, terms end, and what was ordered is lost
// with them: in the end each update was applied once, those of a client in order, and all nodes have the same map.
// A run is repeated by its seed.
func TestRelayAppliesOnce(t *testing.T) {
	runs := *modelRuns
	switch {
	case runs > 0:
	case testing.Short():
		runs = 10
	default:
		runs = 40
	}
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) { relayRun(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// run runs the members until the test ends them.
func (w *world) run() (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, n := range w.nodes {
		running.Go(func() { n.apply(ctx) })
		running.Go(func() { n.member.Run(ctx) })
	}
	return ctx, func() {
		cancel()
		running.Wait()
	}
}

// TestTimesToLiveOfAnyClock: a leader whose wall clock is wrong makes no time to live shorter at the other nodes, whether they get the
// update or a map with it.
func TestTimesToLiveOfAnyClock(t *testing.T) {
	for _, behind := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			ctx, end := w.run()
			defer end()
			commit := func() {
				w.mu.Lock()
				w.committed = len(w.log)
				for _, n := range w.nodes {
					n.give()
				}
				w.mu.Unlock()
				time.Sleep(time.Second)
			}
			w.mu.Lock()
			w.nodes[0].behind = behind
			w.elect(1)
			w.mu.Unlock()
			commit() // of the term
			commit() // of the identity of the map
			for i, n := range w.nodes {
				if !n.member.Serves() {
					t.Fatalf("node %d does not serve", i+1)
				}
			}
			const ttl = time.Minute
			key := []byte("/short")
			r := kvmsg.AppendRecord(nil, key, 0, nil, []byte("ttl=60\n"), []byte("1"))
			spans, _ := kvmsg.SpansOf(r, nil)
			if _, unfit, err := w.nodes[0].local.Apply(ctx, r, spans); err != nil || unfit > 0 {
				t.Fatal(unfit, err)
			}
			began := time.Now()
			commit()
			left := func(n *node) (left time.Duration) {
				n.order.Between(func(now *order.Moment) {
					left = now.State.Deadlines.Remaining(now.State.Store.Newest(kvmsg.HashKey(key), key))
				})
				return left
			}
			atLeast := ttl - time.Since(began)
			for i, n := range w.nodes {
				if got := left(n); got < atLeast || got > ttl {
					t.Errorf("a clock %v behind: at node %d %v are left, want %v to %v", behind, i+1, got, atLeast, ttl)
				}
			}
			last := w.nodes[2]
			image, err := w.nodes[0].member.Image()
			if err != nil {
				t.Fatal(err)
			}
			defer image.Release()
			if err := last.member.Restore(&sentMap{image, behind}); err != nil {
				t.Fatal(err)
			}
			if got := left(last); got < atLeast || got > ttl {
				t.Errorf("a clock %v behind: in a map that was sent %v are left, want %v to %v", behind, got, atLeast, ttl)
			}
		})
	}
}

// sentMap is a map that a node sends whose wall clock may be wrong.
type sentMap struct {
	raft.Image
	behind time.Duration
}

func (s *sentMap) Entries(fn func(commit.Entry) error) error {
	for e := range s.Image.Entries() {
		e.Time -= int64(s.behind)
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

func relayRun(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	w.loss = []float64{0, 0.01, 0.2}[seed%3]
	ctx, end := w.run()
	defer end()
	random := func(n int) int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.r.IntN(n)
	}
	const updates = 200
	var clients sync.WaitGroup
	for c := range 6 {
		numbered := c%2 == 0
		from := order.From{ID: ledger.ID{byte(c + 1)}, Numbered: numbered}
		key := fmt.Sprintf("/%d", c)
		clients.Go(func() {
			n := w.nodes[random(3)]
			for number := uint64(1); number <= updates; {
				var records []byte
				for range 1 + random(3) {
					if number > updates {
						break
					}
					r := update(key, number)
					if !numbered {
						kvmsg.Record(r).SetSeq(0)
					}
					records = append(records, r...)
					number++
				}
				spans, _ := kvmsg.SpansOf(records, nil)
				if numbered && random(40) == 0 { // it moves to another node, and sends again what has no answer
					n = w.nodes[random(3)]
					_ = n.member.Index(ctx)
					n.order.Between(func(now *order.Moment) {
						r := now.State.Clients.Reply(from.ID, now.State.ID)
						number = r.Counter + 1
					})
					continue
				}
				if n.member.Updates(ctx, records, spans, from, nil) != nil {
					return
				}
				time.Sleep(time.Duration(random(2000)) * time.Microsecond)
			}
		})
	}
	for i, n := range w.nodes {
		clients.Go(func() { n.sets(ctx, t, fmt.Sprintf("/%d", 6+i), updates) })
		clients.Go(func() { n.counts(ctx, t, "/9", (updates+i)/3) })
	}
	done := make(chan struct{})
	go func() {
		clients.Wait()
		close(done)
	}()
	last := func(n *node) (all int) {
		n.order.Between(func(now *order.Moment) {
			for c := range keys {
				if r := now.State.Store.Newest(kvmsg.HashKey(fmt.Appendf(nil, "/%d", c)), fmt.Appendf(nil, "/%d", c)); r != nil && binary.BigEndian.Uint64(r.Value()) == updates {
					all++
				}
			}
		})
		return all
	}
	for turn := 0; ; turn++ {
		w.mu.Lock()
		switch {
		case turn < 4000 && w.r.IntN(60) == 0:
			w.elect(uint64(w.r.IntN(3) + 1))
		case turn < 4000 && w.r.IntN(200) == 0 && w.leader != 0:
			w.leader = 0
			w.tell()
		case turn >= 4000 && w.leader == 0:
			w.elect(1)
		default:
			w.commit()
		}
		w.mu.Unlock()
		time.Sleep(time.Duration(random(1500)) * time.Microsecond)
		select {
		case <-done:
			if last(w.nodes[0]) == keys && last(w.nodes[1]) == keys && last(w.nodes[2]) == keys {
				check(t, w, updates)
				return
			}
		default:
		}
		if turn > 200_000 {
			t.Errorf("%d, %d, %d of the keys have their last update", last(w.nodes[0]), last(w.nodes[1]), last(w.nodes[2]))
			return
		}
	}
}

// sets makes updates in a node's own process. One that is not published since its term ends is made nevertheless.
func (n *node) sets(ctx context.Context, t *testing.T, key string, updates uint64) {
	for number := uint64(1); number <= updates && ctx.Err() == nil; number++ {
		r := kvmsg.AppendRecord(nil, []byte(key), 0, nil, nil, binary.BigEndian.AppendUint64(nil, number))
		spans, _ := kvmsg.SpansOf(r, nil)
		written, unfit, err := n.local.Apply(ctx, r, spans)
		if err != nil || unfit > 0 {
			if ctx.Err() == nil {
				t.Errorf("update %d of %s: %d without room, %v", number, key, unfit, err)
			}
			return
		}
		if n.order.Published(ctx, written) != nil || number%8 != 0 {
			continue
		}
		n.order.Between(func(now *order.Moment) {
			if r := now.State.Store.Newest(kvmsg.HashKey([]byte(key)), []byte(key)); r.Seq() > written.Last || binary.BigEndian.Uint64(r.Value()) != number {
				t.Errorf("update %d of %s has sequence %d, and the map has %d of %d", number, key, written.Last, binary.BigEndian.Uint64(r.Value()), r.Seq())
			}
		})
	}
}

// counts adds 1 to a number so many times in a node's own process, with conditions.
func (n *node) counts(ctx context.Context, t *testing.T, key string, times int) {
	value, sequence := uint64(0), int64(0)
	for times > 0 {
		c := txn.Condition{Key: []byte(key), Kind: txn.KindSequence, Sequence: sequence}
		q := txn.Request{Flags: txn.FlagValue, Conditions: c.Append(nil)}
		q.Updates = kvmsg.AppendRecord(nil, []byte(key), 0, make([]byte, kvmsg.UUIDSize), nil, binary.BigEndian.AppendUint64(nil, value+1))
		a, _, err := n.local.Transact(ctx, &q, order.From{})
		switch {
		case err != nil:
			if ctx.Err() == nil {
				t.Errorf("counting: %v", err)
			}
			return
		case a.Status == txn.StatusMade:
			value, sequence = value+1, a.Sequence
			times--
		case a.Status == txn.StatusConflict && a.Has:
			value, sequence = binary.BigEndian.Uint64(a.Value), a.Sequence
		case a.Status == txn.StatusAbsent:
			value, sequence = 0, 0
		default:
			t.Errorf("the answer is %+v", a)
			return
		}
	}
}

// check checks the log.
func check(t *testing.T, w *world, updates uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := map[string]uint64{}
	sequence := int64(0)
	for _, e := range w.log[:w.committed] {
		if e.Kind != 0 && e.Kind != 1 {
			continue
		}
		b := e.Records
		if e.Kind == 1 {
			b = b[len(ledger.ID{})+8:]
		}
		spans, ok := kvmsg.SpansOf(b, nil)
		if !ok {
			t.Fatal("a malformed entry")
		}
		for _, s := range spans {
			r := kvmsg.Record(b[s.Start:s.End])
			if r.Seq() != sequence+1 && sequence != 0 {
				t.Errorf("sequence %d follows %d", r.Seq(), sequence)
			}
			sequence = r.Seq()
			key := string(r.Key())
			next[key]++
			if got := binary.BigEndian.Uint64(r.Value()); got != next[key] {
				t.Errorf("update %d of %s comes where %d has to", got, key, next[key])
				next[key] = got
			}
		}
	}
	for key, n := range next {
		if n != updates {
			t.Errorf("%d updates of %s, want %d", n, key, updates)
		}
	}
}

// TestLeftNodesMakeRoom: however many nodes have relayed updates and left, the leader takes those of a new one; those of a node that
// is no member it does not.
func TestLeftNodesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		_, end := w.run()
		defer end()
		leader := w.nodes[0].member
		note := func(from uint64) {
			leader.Note(from, appendSent(appendPlace(nil, noteItem, place{kind: kindUpdates, run: 1, stream: 1, number: 1}), &sent{}))
			synctest.Wait()
		}
		known := func() []uint64 {
			leader.orders.mu.Lock()
			defer leader.orders.mu.Unlock()
			return slices.Sorted(maps.Keys(leader.orders.nodes))
		}
		first := slices.Clone(w.members)
		for id := uint64(100); id < 100+maxNodes+10; id++ {
			w.mu.Lock()
			w.members = append(first[:len(first):len(first)], raft.Member{Node: id})
			w.mu.Unlock()
			note(id)
			if all := known(); !slices.Contains(all, id) || len(all) > len(first)+1 {
				t.Fatalf("after node %d the leader knows %d nodes: %v", id, len(all), all)
			}
		}
		note(7)
		if all := known(); slices.Contains(all, 7) {
			t.Errorf("the leader takes what a stranger relays: %v", all)
		}
	})
}
