package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// numberedBatch is a batch of updates with the given order numbers.
func numberedBatch(numbers ...uint64) (wire []byte, spans []buf.Span) {
	for _, n := range numbers {
		start := len(wire)
		wire = kvmsg.AppendRecord(wire, []byte("k"), int64(n), nil, nil, []byte("v"))
		spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire))})
	}
	return wire, spans
}

// numbersOf returns the order numbers of a batch.
func numbersOf(wire []byte, spans []buf.Span) (numbers []uint64) {
	for _, s := range spans {
		numbers = append(numbers, uint64(kvmsg.Record(wire[s.Start:s.End]).Seq()))
	}
	return numbers
}

func rangeOf(first, last uint64) (numbers []uint64) {
	for n := first; n <= last; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

func TestOriginsTakeEachNumberOnce(t *testing.T) {
	t.Parallel()
	var o Clients
	a, b := ID{1}, ID{2}
	for i, test := range []struct {
		id         ID
		sent, want []uint64
	}{
		{a, rangeOf(1, 5), rangeOf(1, 5)},
		{a, rangeOf(1, 5), nil},
		{a, rangeOf(3, 8), rangeOf(6, 8)},
		{b, rangeOf(2, 3), rangeOf(2, 3)},
		{b, []uint64{0, 0}, []uint64{0, 0}}, // not numbered
		{a, []uint64{9, 12}, []uint64{9, 12}},
		{a, []uint64{1 << 63, 1<<64 - 1}, []uint64{1 << 63, 1<<64 - 1}},
		{a, rangeOf(13, 14), nil}, // that was its own doing
		{a, []uint64{1<<64 - 1}, nil},
		{b, rangeOf(3, 4), rangeOf(4, 4)},
		{b, nil, nil},
	} {
		wire, spans := numberedBatch(test.sent...)
		if got := numbersOf(wire, o.Once(test.id, wire, spans)); !slices.Equal(got, test.want) {
			t.Errorf("%d: of %d it took %d, want %d", i, test.sent, got, test.want)
		}
	}
	want := []Skip{{10, 11, SkipUnknown}, {13, 1<<63 - 1, SkipUnknown}, {1<<63 + 1, 1<<64 - 2, SkipUnknown}}
	if got := o.ByID[a].Skips; !slices.Equal(got, want) {
		t.Errorf("skipped: %v, want %v", got, want)
	}
}

// Updates behind others that a server left out, because it was not active for a moment,
// are taken when those have come again.
func TestMissedUpdatesComeAgain(t *testing.T) {
	t.Parallel()
	var o Clients
	id := ID{1}
	take := func(missed bool, numbers []uint64, want int) {
		t.Helper()
		wire, spans := numberedBatch(numbers...)
		if missed {
			o.Miss(id, wire, spans)
		} else if got := len(o.Once(id, wire, spans)); got != want {
			t.Errorf("of %d it took %d, want %d", numbers, got, want)
		}
	}
	take(false, rangeOf(1, 4), 4)
	take(true, rangeOf(5, 7), 0)
	take(true, rangeOf(8, 9), 0)
	take(false, rangeOf(10, 12), 0)
	take(false, rangeOf(5, 14), 10) // the client has connected again
	take(false, rangeOf(15, 16), 2)
	take(true, rangeOf(17, 20), 0)
	o.Note(id, 16, 16, 50)
	o.Note(id, 30, 14, 100) // another server took them
	take(false, rangeOf(31, 40), 10)
	if p := o.ByID[id]; len(p.Skips) > 0 {
		t.Errorf("skipped: %v", p.Skips)
	}
}

// The ranges that were skipped are in order and do not overlap, and a look-up in them is
// right, however many there are.
func TestSkips(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := &Progress{}
		skipped := map[uint64]kvmsg.Reason{}
		var n uint64
		for range r.IntN(300) {
			// As a batch does it: first the missing updates, then the refused ones.
			from := n + 1
			for range 1 + r.IntN(20) {
				n += 1 + r.Uint64N(3)
				if r.IntN(4) == 0 {
					last := n + r.Uint64N(3)
					p.skip(n, last, SkipUnknown)
					for ; n <= last; n++ {
						skipped[n] = SkipUnknown
					}
				}
			}
			for k := from; k <= n; k++ {
				if _, done := skipped[k]; !done && r.IntN(3) == 0 {
					p.skip(k, k, kvmsg.ReasonMapFull)
					skipped[k] = kvmsg.ReasonMapFull
				}
			}
		}
		if len(p.Skips) > maxSkips {
			t.Fatalf("seed %d: %d ranges", seed, len(p.Skips))
		}
		for i, s := range p.Skips {
			if s.first > s.Last || i > 0 && s.first <= p.Skips[i-1].Last {
				t.Fatalf("seed %d: %v", seed, p.Skips)
			}
		}
		a := Reply{skips: p.Skips}
		for k := uint64(0); k <= n+1; k++ {
			want, is := skipped[k]
			got, ok := a.Skipped(k)
			if is && !ok || ok && got != SkipSome && (!is || got != want) {
				t.Fatalf("seed %d: number %d: skipped %v (%v), and it says %v (%v)", seed, k, is, want, ok, got)
			}
		}
	}
}

// A client and a server, connections between them that break and deliver late, updates that
// are in the map only some time after they were ordered, and servers that take over without
// those: every update is applied once and in order, and nothing that was refused counts as
// applied.
func TestNumbersAreEnough(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		o := new(Clients)
		var id ID
		type connection struct{ queue []uint64 }
		var old []*connection
		var now *connection
		applied, refused := []uint64{}, map[uint64]bool{}
		var ordered [][]uint64 // batches that are not in the map yet
		commit := func(n int) {
			for _, batch := range ordered[:n] {
				o.Note(id, batch[len(batch)-1], len(batch), int64(len(applied)))
				applied = append(applied, batch...)
			}
			ordered = ordered[n:]
		}
		takeOver := func() {
			next := new(Clients)
			for _, portion := range o.Portions() {
				if !next.Add(portion) {
					t.Fatal("the clients were refused")
				}
			}
			o, ordered = next, nil
			p := o.ByID[id]
			for n := range refused {
				if p == nil || n > p.counter {
					delete(refused, n) // it comes again
				}
			}
		}
		deliver := func(c *connection, n int) {
			for n = min(n, len(c.queue)); n > 0; {
				size := 1 + r.IntN(n)
				var arrived []uint64
				for _, number := range c.queue[:size] {
					if number%11 == 0 { // refused whenever it comes
						refused[number] = true
					} else {
						arrived = append(arrived, number)
					}
				}
				c.queue, n = c.queue[size:], n-size
				wire, spans := numberedBatch(arrived...)
				var fit, unfit []buf.Span
				for _, span := range o.Once(id, wire, spans) {
					if number := uint64(kvmsg.Record(wire[span.Start:span.End]).Seq()); r.IntN(30) == 0 {
						unfit = append(unfit, span)
						refused[number] = true
					} else {
						fit = append(fit, span)
					}
				}
				if len(unfit) > 0 {
					for i := range unfit {
						unfit[i].Tag = uint64(kvmsg.ReasonMapFull)
					}
					o.Refuse(id, wire, unfit)
				}
				if len(fit) > 0 {
					ordered = append(ordered, numbersOf(wire, fit))
				}
				if late := seed%3 > 0; !late {
					commit(len(ordered))
				} else {
					commit(r.IntN(len(ordered) + 1))
				}
			}
		}
		var sent uint64
		connect := func() {
			if now != nil {
				old = append(old, now)
			}
			now = &connection{}
			counter := uint64(0)
			if p := o.ByID[id]; p != nil {
				counter = p.counter
			}
			now.queue = rangeOf(counter+1, sent) // sent again
		}
		connect()
		for range 300 {
			switch r.IntN(8) {
			case 0:
				if seed%3 == 2 && r.IntN(3) == 0 {
					takeOver()
					old, now = nil, nil // connections to the other server
				}
				connect()
			case 1, 2:
				if len(old) > 0 {
					deliver(old[r.IntN(len(old))], 1+r.IntN(20))
				}
			case 3, 4:
				deliver(now, 1+r.IntN(20))
			default:
				for range 1 + r.IntN(10) {
					sent++
					now.queue = append(now.queue, sent)
				}
			}
		}
		connect()
		sent++
		now.queue = append(now.queue, sent) // behind all that can be refused without a trace
		deliver(now, len(now.queue))
		for _, c := range old {
			deliver(c, len(c.queue))
		}
		commit(len(ordered))
		p := o.ByID[id]
		message := o.Reply(id, [MapIDSize]byte{})
		next := 0
		for n := uint64(1); n <= p.counter; n++ {
			is := next < len(applied) && applied[next] == n
			if is {
				next++
			}
			reason, skipped := message.Skipped(n)
			if is == refused[n] || !is && !skipped || is && skipped && reason != SkipSome {
				t.Fatalf("seed %d: number %d: applied %v, refused %v, skipped %v %v", seed, n, is, refused[n], skipped, reason)
			}
		}
		if next != len(applied) || p.counter+1 < sent {
			t.Fatalf("seed %d: %d of %d applied are in order; %d of %d were taken", seed, next, len(applied), p.counter, sent)
		}
	}
}

// The number of remembered clients is bounded. The client that has sent nothing for
// longest is forgotten first, and the last sequence of all forgotten ones is kept.
func TestOriginsAreBounded(t *testing.T) {
	t.Parallel()
	var o Clients
	id := func(i int) (id ID) {
		binary.BigEndian.PutUint64(id[:], uint64(i)+1)
		return id
	}
	for i := range maxOrigins {
		o.Note(id(i), 5, 5, int64(1000+i))
	}
	o.Note(id(0), 6, 1, 1_000_000) // it is not the oldest any more
	if o.forgotten != 0 || len(o.ByID) != maxOrigins {
		t.Fatalf("%d are known, forgotten up to %d", len(o.ByID), o.forgotten)
	}
	for i := range 10 {
		o.use(id(maxOrigins + i))
	}
	if len(o.ByID) != maxOrigins || o.forgotten != 1010 {
		t.Errorf("%d are known, forgotten up to %d", len(o.ByID), o.forgotten)
	}
	if o.ByID[id(0)] == nil || o.ByID[id(10)] != nil || o.ByID[id(11)] == nil {
		t.Error("others were forgotten than those that have sent nothing for longest")
	}
}

// The facts in a log: counters, and that some updates of a batch were refused.
func TestOriginsFromALog(t *testing.T) {
	t.Parallel()
	var o Clients
	id := ID{7}
	o.Note(id, 10, 10, 100)
	o.Note(id, 15, 3, 110) // two of five are missing
	o.Note(id, 12, 2, 110) // the log is read twice
	o.Note(id, 16, 1, 113)
	p := o.ByID[id]
	if p.counter != 16 || p.at != 113 || !slices.Equal(p.Skips, []Skip{{11, 15, SkipSome}}) {
		t.Errorf("%+v", p)
	}
}

func TestOriginsCheckpoint(t *testing.T) {
	t.Parallel()
	var o, restored Clients
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		id := ID{byte(i), byte(i >> 8)}
		o.Note(id, uint64(i), i, int64(i))
		for n := range r.IntN(100) {
			o.use(id).skip(uint64(2*n), uint64(2*n), kvmsg.Reason(r.IntN(3)))
		}
	}
	o.forgotten = 77
	stored := o.Portions()
	for _, portion := range stored {
		if !restored.Add(portion) {
			t.Fatal("a portion was refused")
		}
	}
	if again := restored.Portions(); !slices.EqualFunc(again, stored, bytes.Equal) {
		t.Error("what was restored differs from what was stored")
	}
	whole := stored[0]
	for _, broken := range [][]byte{nil, whole[:5], whole[:len(whole)-1], whole[:8+16]} {
		if restored.Add(broken) {
			t.Errorf("%d bytes of %d were accepted", len(broken), len(whole))
		}
	}
	var none Clients
	if all := none.Portions(); len(all) != 1 || !restored.Add(all[0]) {
		t.Errorf("%d portions of empty origins", len(all))
	}
}

func TestAppliedMessage(t *testing.T) {
	t.Parallel()
	var got Reply // the same for all: nothing of one is in the next
	for _, want := range []Reply{
		{Known: true, Counter: 9, skips: []Skip{{2, 3, SkipUnknown}}, Runs: []Run{{4, 7}, {9, 90}}},
		{Runs: []Run{}},
		{},
		{mapID: [MapIDSize]byte{1, 2}, Known: true, Counter: 9, forgotten: 1 << 40},
		{Known: true, Counter: maxOrder, skips: []Skip{{1, 2, kvmsg.ReasonMapFull}, {5, 1<<64 - 1, SkipSome}}},
	} {
		m := zmtp.WireMessage(AppendReply(nil, &want))
		if !got.Parse(m) || !IsReply(m) || got.mapID != want.mapID || got.Known != want.Known || got.Counter != want.Counter ||
			got.forgotten != want.forgotten || !slices.Equal(got.skips, want.skips) ||
			!slices.Equal(got.Runs, want.Runs) || (got.Runs == nil) != (want.Runs == nil) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	id, number := make([]byte, MapIDSize), make([]byte, 8)
	key := []byte(keyApplied)
	for i, frames := range [][][]byte{
		{key}, {key, id, number, number}, {key, id[1:], number, number, nil}, {key, id, number[1:], number, nil},
		{key, id, number, nil, nil}, {key, id, number, number, number}, {[]byte("REFUSED"), id, number, number, nil},
		{key, id, number, number, make([]byte, (maxSkips+1)*skipSize)}, {key, id, binary.BigEndian.AppendUint64(nil, maxOrder+1), number, nil},
	} {
		if got.Parse(zmtp.AppendMessage(nil, frames...)) {
			t.Errorf("%d: taken", i)
		}
	}
	// A key of that name is no such message.
	if IsReply(zmtp.WireMessage(kvmsg.AppendRecord(nil, key, 1, make([]byte, kvmsg.UUIDSize), nil, []byte("v")))) {
		t.Error("a KVSYNC was taken for it")
	}
}

// To look for duplicates costs no allocation, nor does a Set at a server that counts,
// while everything comes back.
func TestOnceAllocatesNothing(t *testing.T) {
	var o Clients
	wire, spans := numberedBatch(rangeOf(1, 100)...)
	next := uint64(1)
	id := ID{1}
	if n := testenv.Allocs(0, 100, func() {
		for _, s := range spans {
			kvmsg.Record(wire[s.Start:s.End]).SetSeq(int64(next))
			next++
		}
		if len(o.Once(id, wire, spans)) != len(spans) {
			t.Fatal("some were taken for repetitions")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// TestReplyAllocatesNothing: neither the server that makes one for each update nor the client
// that settles its updates by it allocates, with other clients' updates between them and some
// refused. The client waits for two updates at a time.
func TestReplyAllocatesNothing(t *testing.T) {
	var server Clients
	var client Account
	var reply Reply
	var wire []byte
	at, next := int64(0), uint64(1)
	client.Reconcile(&reply, 0)
	waits := make([]Wait, 2)
	round := func() {
		*waits[0].group = Group{Done: waits[0].group.Done, left: 3}
		for i := range waits {
			next = client.Stage(false, &waits[i])
			client.Send(next)
		}
		for n := next - 1; n <= next; n++ {
			server.Note(ID{1}, n, 1, at)
			at += 2
			a := server.Reply(ID{1}, [MapIDSize]byte{})
			wire = AppendReply(wire[:0], &a)
			if !reply.Parse(wire) || !client.Reply(&reply) {
				t.Fatal("a reply was not taken")
			}
			client.Seen(at)
		}
		if waits[0].group.left != 1 || waits[0].group.Seq != at-1 || client.Waits() > 0 || !client.Done(next) {
			t.Fatalf("%d waits are left, and the last sequence is %d, want %d", client.Waits(), waits[0].group.Seq, at-1)
		}
	}
	g, _ := NewGroup(0)
	waits[0].group, waits[1].group = g, g
	if n := testenv.Allocs(100, 1000, round); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Skipped reports whether number n was not applied, and why.
func (a *Reply) Skipped(n uint64) (reason kvmsg.Reason, ok bool) {
	i := sort.Search(len(a.skips), func(i int) bool { return a.skips[i].Last >= n })
	if i == len(a.skips) || a.skips[i].first > n {
		return 0, false
	}
	return a.skips[i].reason, true
}

// TestOriginsInWireForm: the origins survive being written and read, in the order of use.
func TestOriginsInWireForm(t *testing.T) {
	t.Parallel()
	var o Clients
	const clients = 5000
	id := func(i int) (id ID) {
		copy(id[:], fmt.Sprintf("%016d", i))
		return id
	}
	for i := range clients {
		o.Note(id(i), uint64(i+10), i%20, int64(i))
	}
	o.forgotten = 77
	var read Clients
	for _, portion := range o.Portions() {
		if !read.Add(portion) {
			t.Fatal("a portion is not understood")
		}
		for n := range min(len(portion), 200) {
			if n != 8 && n != 0 {
				var part Clients
				part.Add(portion[:n]) // nothing to check but that it does not panic
			}
		}
	}
	if len(read.ByID) != clients || read.forgotten != 77 {
		t.Fatalf("%d clients, forgotten %d", len(read.ByID), read.forgotten)
	}
	was, is := slices.Collect(o.used.All()), slices.Collect(read.used.All())
	for i := range clients {
		a, b := was[i], is[i]
		if a.id != b.id || a.counter != b.counter || a.at != b.at || fmt.Sprint(a.Skips) != fmt.Sprint(b.Skips) {
			t.Fatalf("%v, want %v", b, a)
		}
	}
	var none, empty Clients
	if p := none.Portions(); len(p) != 1 || !empty.Add(p[0]) || len(empty.ByID) != 0 {
		t.Error("no clients do not survive")
	}
}

// TestReplyIsLimited: a reply up to a number says what the whole one says of the updates up to that number, and nothing of others.
func TestReplyIsLimited(t *testing.T) {
	t.Parallel()
	whole := Reply{Known: true, Counter: 20, skips: []Skip{{3, 4, SkipUnknown}, {9, 12, SkipSome}}, Runs: []Run{{8, 106}, {20, 120}}}
	for n := uint64(1); n <= 25; n++ {
		got := whole
		got.skips, got.Runs = slices.Clone(whole.skips), slices.Clone(whole.Runs)
		got.Limit(n)
		if got.Counter != min(n, whole.Counter) {
			t.Errorf("limited to %d: counter %d", n, got.Counter)
		}
		if len(got.Runs) > 0 && got.Runs[len(got.Runs)-1].Last > n && n <= 20 || len(got.skips) > 0 && got.skips[len(got.skips)-1].Last > n && n <= 20 {
			t.Errorf("limited to %d: %+v", n, got)
		}
		var again Reply
		if b := AppendReply(nil, &got); !again.Parse(b) {
			t.Errorf("limited to %d: %+v is malformed", n, got)
		}
		for i := uint64(1); i <= got.Counter; i++ {
			if skippedBetween(whole.skips, i-1, i) != skippedBetween(got.skips, i-1, i) {
				t.Errorf("limited to %d: %d is skipped in one of %+v and %+v", n, i, got, whole)
			}
		}
	}
}

// TestRevertedUpdatesComeAgain: what was ordered and is lost is accepted again.
func TestRevertedUpdatesComeAgain(t *testing.T) {
	t.Parallel()
	var o Clients
	id := ID{1}
	wire, spans := numberedBatch(1, 2, 3)
	if got := o.Once(id, wire, spans); len(got) != 3 {
		t.Fatal(got)
	}
	o.Note(id, 1, 1, 100)
	o.Revert()
	wire, spans = numberedBatch(1, 2, 3)
	if got := o.Once(id, wire, spans); len(got) != 2 {
		t.Errorf("%d of three updates are accepted, of which one is in the map", len(got))
	}
	if r := o.Reply(id, [MapIDSize]byte{}); r.Counter != 1 || len(r.skips) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestLatestGeneration: what comes over an earlier connection is not taken after something has come over a later one.
func TestLatestGeneration(t *testing.T) {
	t.Parallel()
	var o Clients
	for _, c := range []struct {
		generation uint64
		want       bool
	}{{3, true}, {3, true}, {5, true}, {4, false}, {5, true}} {
		if got := o.Latest(ID{1}, c.generation); got != c.want {
			t.Errorf("generation %d: %v", c.generation, got)
		}
	}
	if !o.Latest(ID{2}, 1) {
		t.Error("another client")
	}
}
