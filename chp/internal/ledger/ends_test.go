package ledger

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// world is a client and a server, which are real, with connections between them that
// break and deliver late, updates that are in the map only some time after they were ordered,
// servers that take over without those, and servers with another map. Updates have ids that
// rise in the order of the calls; their numbers can change until they are sent.
type world struct {
	t *testing.T
	r *rand.Rand

	account *Account
	waits   map[int]*Wait
	removed map[int]bool // these ids were removed
	staged  []update     // those that are kept, and those to be sent
	at      int          // index of the one that is sent next
	ids     int
	flushes map[*Wait]int // and the last id before it

	server  *Clients
	mapID   [MapIDSize]byte
	seq     int64   // of the last ordered update
	public  int64   // of the last published one
	ordered []batch // and not published
	seen    int64   // what the replica has
	maps    int     // that the client has met
	takenBy int     // times that a server took over

	now, old []*connection // now has one, or none
	replies  []answer      // on their way
	heard    Reply         // the last one that came

	applied map[int]int64 // sequence, by id
	refused map[int]bool
	last    map[[MapIDSize]byte]int // the last id that was applied
}

type update struct {
	n       uint64
	id      int
	foreign bool
}

type batch struct {
	updates []update // none: another client's
	first   int64
}

type connection struct{ queue []update }

// answer is a reply, or a refusal.
type answer struct {
	wire    []byte
	refused uint64
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), account: new(Account), waits: map[int]*Wait{}, removed: map[int]bool{}, flushes: map[*Wait]int{},
		server: new(Clients), mapID: [MapIDSize]byte{1}, seq: 100, public: 100, maps: 1,
		applied: map[int]int64{}, refused: map[int]bool{}, last: map[[MapIDSize]byte]int{},
	}
}

// set stages an update.
func (w *world) set() {
	w.ids++
	u := update{id: w.ids, foreign: w.r.IntN(5) == 0}
	var wait *Wait
	if !u.foreign && w.r.IntN(2) == 0 {
		wait = NewWait()
		w.waits[u.id] = wait
	}
	u.n = w.account.Stage(u.foreign, wait)
	w.staged = append(w.staged, u)
}

// send sends some updates.
func (w *world) send() {
	if len(w.now) == 0 {
		return
	}
	n := min(len(w.staged)-w.at, 1+w.r.IntN(8))
	if n > 0 {
		w.now[0].queue = append(w.now[0].queue, w.staged[w.at:w.at+n]...)
		w.at += n
		last := w.staged[w.at-1].n
		if w.r.IntN(4) == 0 { // the server is faster
			w.deliver(w.now[0])
			w.publish(len(w.ordered))
			w.replies = append(w.replies, answer{wire: w.reply()})
			w.seen = w.public
			w.account.Seen(w.seen)
			w.hear(len(w.replies))
			if first, _ := w.account.Open(); len(w.now[0].queue) == 0 && first <= last && w.server.ByID[ID{}].counter == last {
				w.t.Fatalf("the server has all, and %d is not settled", first)
			}
		}
		w.account.Send(last)
		w.free()
	}
}

// remove removes an update that was not sent.
func (w *world) remove() {
	i := w.at + w.r.IntN(len(w.staged)-w.at+1)
	if i == len(w.staged) || w.staged[i].n <= w.account.Sent() || w.waits[w.staged[i].id] == nil {
		return
	}
	u := w.staged[i]
	w.account.Forget(w.waits[u.id], nil)
	delete(w.waits, u.id)
	w.removed[u.id] = true
	w.account.Remove(u.n)
	w.staged = slices.Delete(w.staged, i, i+1)
	for ; i < len(w.staged); i++ {
		w.staged[i].n--
	}
}

// free forgets what need not be kept.
func (w *world) free() {
	for w.at > 0 && w.staged[0].n <= w.account.Sent() && w.account.Done(w.staged[0].n) {
		if u := w.staged[0]; w.applied[u.id] == 0 && !w.refused[u.id] && w.maps == 1 {
			w.t.Fatalf("update %d is not kept, and not applied", u.id)
		}
		w.staged = w.staged[1:]
		w.at--
	}
}

// connect begins a session. Late updates can arrive between the first reply and the snapshot.
func (w *world) connect() {
	w.account.Leave()
	w.old, w.now = append(w.old, w.now...), nil
	reply := w.reply()
	w.late()
	if !w.heard.Parse(reply) {
		w.t.Fatal("a malformed reply")
	}
	w.replies, w.seen = nil, w.public
	next := w.account.Reconcile(&w.heard, w.seen)
	w.at = 0
	for w.at < len(w.staged) && w.staged[w.at].n < next {
		w.at++
	}
	next = w.account.Sent() + 1
	if w.at < len(w.staged) {
		next = min(next, w.staged[w.at].n)
	}
	w.account.Lose(next-1, ErrUncertain)
	w.now = []*connection{{}}
	w.free()
	w.check()
}

func (w *world) reply() zmtp.WireMessage {
	a := w.server.Reply(ID{}, w.mapID)
	return zmtp.WireMessage(AppendReply(nil, &a))
}

// late delivers updates of an old connection.
func (w *world) late() {
	if len(w.old) > 0 {
		w.deliver(w.old[w.r.IntN(len(w.old))])
	}
}

// deliver delivers some updates of a connection. Some are refused whenever they come, some
// because the map is full.
func (w *world) deliver(c *connection) {
	n := min(len(c.queue), 1+w.r.IntN(10))
	arrived := c.queue[:n]
	c.queue = c.queue[n:]
	current := len(w.now) > 0 && c == w.now[0]
	refuse := func(u update) {
		w.refused[u.id] = true
		if current {
			w.replies = append(w.replies, answer{refused: u.n})
		}
	}
	var numbers []uint64
	byNumber := map[uint64]update{}
	for _, u := range arrived {
		if byNumber[u.n] = u; u.id%11 == 0 {
			refuse(u)
		} else {
			numbers = append(numbers, u.n)
		}
	}
	wire, spans := numberedBatch(numbers...)
	var fit, unfit []buf.Span
	for _, span := range w.server.Once(ID{}, wire, spans) {
		if w.r.IntN(30) == 0 {
			unfit = append(unfit, span)
		} else {
			fit = append(fit, span)
		}
	}
	if len(unfit) > 0 {
		for i := range unfit {
			unfit[i].Tag = uint64(kvmsg.ReasonMapFull)
		}
		w.server.Refuse(ID{}, wire, unfit)
		for _, n := range numbersOf(wire, unfit) {
			refuse(byNumber[n])
		}
	}
	if len(fit) > 0 {
		b := batch{first: w.seq + 1}
		for _, n := range numbersOf(wire, fit) {
			b.updates = append(b.updates, byNumber[n])
		}
		w.seq += int64(len(fit))
		w.ordered = append(w.ordered, b)
	}
}

// others orders an update of another client.
func (w *world) others() {
	w.seq++
	w.ordered = append(w.ordered, batch{first: w.seq})
}

// publish publishes some batches.
func (w *world) publish(n int) {
	for _, b := range w.ordered[:n] {
		if w.public = b.first; len(b.updates) == 0 {
			continue
		}
		w.public = b.first + int64(len(b.updates)) - 1
		w.server.Note(ID{}, b.updates[len(b.updates)-1].n, len(b.updates), b.first-1)
		for i, u := range b.updates {
			if w.applied[u.id] != 0 || w.removed[u.id] || u.id <= w.last[w.mapID] {
				w.t.Fatalf("update %d is applied again (%d), was removed (%v), or is out of order behind %d", u.id, w.applied[u.id], w.removed[u.id], w.last[w.mapID])
			}
			w.applied[u.id], w.last[w.mapID] = b.first+int64(i), u.id
		}
	}
	w.ordered = w.ordered[n:]
}

// hear delivers answers to the client, in order.
func (w *world) hear(n int) {
	for ; n > 0 && len(w.replies) > 0; n-- {
		a := w.replies[0]
		if w.replies = w.replies[1:]; a.refused > 0 {
			w.account.Refuse(a.refused, kvmsg.ReasonMapFull)
			continue
		}
		if !w.heard.Parse(zmtp.WireMessage(a.wire)) || !w.account.Reply(&w.heard) {
			w.t.Fatal("a reply was not taken")
		}
		w.account.Seen(w.seen)
	}
	w.check()
	w.free()
}

// takeOver makes a server the active one that lacks what is not published.
func (w *world) takeOver(other bool) {
	next := new(Clients)
	if other {
		w.mapID[0]++
		w.maps++
	} else {
		for _, portion := range w.server.Portions() {
			if !next.Add(portion) {
				w.t.Fatal("the clients were refused")
			}
		}
	}
	w.takenBy++
	w.server, w.ordered, w.seq = next, nil, w.public+int64(w.r.IntN(3))
	w.account.Leave()
	w.old, w.now, w.replies = nil, nil, nil
}

// check checks the waits that have ended.
func (w *world) check() {
	for id, wait := range w.waits {
		if wait.pending() {
			continue
		}
		delete(w.waits, id)
		at := w.applied[id]
		switch {
		case wait.err == nil && (at == 0 || wait.seq < at || wait.seq > w.seen):
			w.t.Fatalf("update %d was applied as %d, and it says as %d; the replica has %d", id, at, wait.seq, w.seen)
		case errors.Is(wait.err, ErrRefused) && (!w.refused[id] || at != 0 && w.takenBy == 0):
			w.t.Fatalf("update %d: it says %v, and it was applied as %d", id, wait.err, at)
		case errors.Is(wait.err, ErrUncertain) && w.maps == 1 && !w.merged():
			w.t.Fatalf("update %d is uncertain", id)
		}
	}
	for wait, last := range w.flushes {
		if wait.pending() {
			continue
		}
		delete(w.flushes, wait)
		for id, other := range w.waits {
			if id <= last && other.pending() {
				w.t.Fatalf("Flush of %d has ended, and the update %d is pending", last, id)
			}
		}
	}
}

// merged reports whether the server has forgotten which of some updates it refused.
func (w *world) merged() bool {
	p := w.server.ByID[ID{}]
	return p != nil && slices.ContainsFunc(p.Skips, func(s Skip) bool { return s.reason == SkipSome })
}

// Both ends in random schedules: each update is applied once and in order, its outcome is
// true and known only when the replica shows it, nothing is kept in the end, and nothing is
// uncertain while the map lives.
func TestBothEnds(t *testing.T) {
	t.Parallel()
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		w := newWorld(t, seed)
		w.connect()
		for range 400 {
			switch w.r.IntN(16) {
			case 0:
				if kind := w.r.IntN(12); kind == 0 && seed%3 == 2 {
					w.takeOver(seed%2 == 1 && w.r.IntN(3) == 0)
				} else if kind < 4 {
					w.connect()
				}
			case 1:
				w.late()
			case 2:
				w.others()
			case 3:
				w.remove()
			case 4:
				if wait, _ := w.account.Flush(errClosed); wait != nil {
					w.flushes[wait] = w.ids
				}
			case 5, 6, 7:
				w.set()
			case 8, 9:
				w.send()
			case 10, 11:
				if len(w.now) > 0 {
					w.deliver(w.now[0])
				}
			case 12, 13:
				w.publish(w.r.IntN(len(w.ordered) + 1))
				if len(w.now) > 0 && w.r.IntN(2) == 0 {
					w.replies = append(w.replies, answer{wire: w.reply()})
				}
			case 14:
				w.hear(1 + w.r.IntN(3))
			default:
				if w.seen += int64(w.r.IntN(4)); w.seen > w.public {
					w.seen = w.public
				}
				w.account.Seen(w.seen)
				w.check()
				w.free()
			}
		}
		w.connect()
		w.set()
		for len(w.now[0].queue) > 0 || w.at < len(w.staged) {
			w.send()
			w.deliver(w.now[0])
		}
		w.publish(len(w.ordered))
		w.replies = append(w.replies, answer{wire: w.reply()})
		w.hear(len(w.replies))
		w.seen = w.public
		w.account.Seen(w.seen)
		w.check()
		w.free()
		p := w.server.ByID[ID{}]
		if n := len(w.waits) + len(w.flushes); n > 0 && p.counter == w.account.staged {
			t.Fatalf("seed %d: %d waits are left: %+v", seed, n, w.account)
		}
		if len(w.staged) > 0 && p.counter == w.account.staged {
			t.Fatalf("seed %d: %d updates are kept: %+v", seed, len(w.staged), w.account)
		}
		if t.Failed() {
			return
		}
	}
}
