package chp

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// numberedBatch is a batch of updates with the given order numbers.
func numberedBatch(numbers ...uint64) (wire []byte, spans []sockets.Span) {
	for _, n := range numbers {
		start := len(wire)
		wire = kvmsg.AppendRecord(wire, []byte("k"), int64(n), nil, nil, []byte("v"))
		spans = append(spans, sockets.Span{Start: uint32(start), End: uint32(len(wire))})
	}
	return wire, spans
}

// numbersOf returns the order numbers of a batch.
func numbersOf(wire []byte, spans []sockets.Span) (numbers []uint64) {
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
	q := sequencer{state: newMapState(0)}
	a, b := clientID{1}, clientID{2}
	for i, test := range []struct {
		id         clientID
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
		if got := numbersOf(wire, q.state.clients.once(test.id, wire, spans, q.state.last())); !slices.Equal(got, test.want) {
			t.Errorf("%d: of %d it took %d, want %d", i, test.sent, got, test.want)
		}
	}
	want := []skip{{10, 11, skipUnknown}, {13, 1<<63 - 1, skipUnknown}, {1<<63 + 1, 1<<64 - 2, skipUnknown}}
	if got := q.state.clients.find(a).skips; !slices.Equal(got, want) {
		t.Errorf("skipped: %v, want %v", got, want)
	}
}

// Updates behind others that a server left out, because it was not active for a moment,
// are taken when those have come again.
func TestMissedUpdatesComeAgain(t *testing.T) {
	t.Parallel()
	q := sequencer{state: newMapState(0)}
	id := clientID{1}
	take := func(missed bool, numbers []uint64, want int) {
		t.Helper()
		wire, spans := numberedBatch(numbers...)
		if missed {
			q.state.clients.miss(id, wire, spans)
		} else if got := len(q.state.clients.once(id, wire, spans, q.state.last())); got != want {
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
	q.state.clients.note(id, 30, 14, 100) // another server took them
	take(false, rangeOf(31, 40), 10)
	if p := q.state.clients.find(id); len(p.skips) > 0 {
		t.Errorf("skipped: %v", p.skips)
	}
}

// The ranges that were skipped are in order and do not overlap, and a look-up in them is
// right, however many there are.
func TestSkips(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := &progress{}
		skipped := map[uint64]Reason{}
		var n uint64
		for range r.IntN(300) {
			// As a batch does it: first the missing updates, then the refused ones.
			from := n + 1
			for range 1 + r.IntN(20) {
				n += 1 + r.Uint64N(3)
				if r.IntN(4) == 0 {
					last := n + r.Uint64N(3)
					p.skip(n, last, skipUnknown)
					for ; n <= last; n++ {
						skipped[n] = skipUnknown
					}
				}
			}
			for k := from; k <= n; k++ {
				if _, done := skipped[k]; !done && r.IntN(3) == 0 {
					p.skip(k, k, ReasonMapFull)
					skipped[k] = ReasonMapFull
				}
			}
		}
		if len(p.skips) > maxSkips {
			t.Fatalf("seed %d: %d ranges", seed, len(p.skips))
		}
		for i, s := range p.skips {
			if s.first > s.last || i > 0 && s.first <= p.skips[i-1].last {
				t.Fatalf("seed %d: %v", seed, p.skips)
			}
		}
		a := applied{skips: p.skips}
		for k := uint64(0); k <= n+1; k++ {
			want, is := skipped[k]
			got, ok := a.skipped(k)
			if is && !ok || ok && got != skipSome && (!is || got != want) {
				t.Fatalf("seed %d: number %d: skipped %v (%v), and it says %v (%v)", seed, k, is, want, ok, got)
			}
		}
	}
}

// A client and a server, and connections between them that break and deliver late:
// every update is applied once and in order, and nothing that was refused counts as
// applied.
func TestNumbersAreEnough(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		q := sequencer{state: newMapState(0)}
		var id clientID
		type connection struct{ queue []uint64 }
		var old []*connection
		var now *connection
		applied, refused := []uint64{}, map[uint64]bool{}
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
				var fit, unfit []sockets.Span
				for _, span := range q.state.clients.once(id, wire, spans, q.state.last()) {
					if number := uint64(kvmsg.Record(wire[span.Start:span.End]).Seq()); r.IntN(30) == 0 {
						unfit = append(unfit, span)
						refused[number] = true
					} else {
						fit = append(fit, span)
					}
				}
				if len(unfit) > 0 {
					q.state.clients.refuse(id, wire, unfit, ReasonMapFull)
				}
				applied = append(applied, numbersOf(wire, fit)...)
			}
		}
		var sent uint64
		connect := func() {
			if now != nil {
				old = append(old, now)
			}
			now = &connection{}
			counter := uint64(0)
			if p := q.state.clients.find(id); p != nil {
				counter = p.counter
			}
			now.queue = rangeOf(counter+1, sent) // sent again
		}
		connect()
		for range 300 {
			switch r.IntN(8) {
			case 0:
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
		p := q.state.clients.find(id)
		message := appliedOf(p)
		next := 0
		for n := uint64(1); n <= p.counter; n++ {
			is := next < len(applied) && applied[next] == n
			if is {
				next++
			}
			reason, skipped := message.skipped(n)
			if is == refused[n] || !is && !skipped || is && skipped && reason != skipSome {
				t.Fatalf("seed %d: number %d: applied %v, refused %v, skipped %v %v", seed, n, is, refused[n], skipped, reason)
			}
		}
		if next != len(applied) || p.counter+1 < sent {
			t.Fatalf("seed %d: %d of %d applied are in order; %d of %d were taken", seed, next, len(applied), p.counter, sent)
		}
	}
}

func appliedOf(p *progress) *applied { return &applied{counter: p.counter, skips: p.skips} }

// The number of remembered clients is bounded. The client that has sent nothing for
// longest is forgotten first, and the last sequence of all forgotten ones is kept.
func TestOriginsAreBounded(t *testing.T) {
	t.Parallel()
	var o origins
	id := func(i int) (id clientID) {
		binary.BigEndian.PutUint64(id[:], uint64(i)+1)
		return id
	}
	for i := range maxOrigins {
		o.note(id(i), 5, 5, int64(1000+i))
	}
	o.note(id(0), 6, 1, 1_000_000) // it is not the oldest any more
	if o.forgotten != 0 || len(o.byID) != maxOrigins {
		t.Fatalf("%d are known, forgotten up to %d", len(o.byID), o.forgotten)
	}
	for i := range 10 {
		o.use(id(maxOrigins + i))
	}
	if len(o.byID) != maxOrigins || o.forgotten != 1010 {
		t.Errorf("%d are known, forgotten up to %d", len(o.byID), o.forgotten)
	}
	if o.find(id(0)) == nil || o.find(id(10)) != nil || o.find(id(11)) == nil {
		t.Error("others were forgotten than those that have sent nothing for longest")
	}
	o.clear()
	if len(o.byID) != 0 || o.forgotten != 0 || o.find(id(0)) != nil {
		t.Error("clear forgets not everything")
	}
}

// The facts in a log: counters, and that some updates of a batch were refused.
func TestOriginsFromALog(t *testing.T) {
	t.Parallel()
	var o origins
	id := clientID{7}
	o.note(id, 10, 10, 100)
	o.note(id, 15, 3, 110) // two of five are missing
	o.note(id, 12, 2, 110) // the log is read twice
	o.note(id, 16, 1, 113)
	p := o.find(id)
	if p.counter != 16 || p.at != 113 || !slices.Equal(p.skips, []skip{{11, 15, skipSome}}) {
		t.Errorf("%+v", p)
	}
}

func TestOriginsCheckpoint(t *testing.T) {
	t.Parallel()
	var o, restored origins
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		id := clientID{byte(i), byte(i >> 8)}
		o.note(id, uint64(i), i, int64(i))
		for n := range r.IntN(100) {
			o.use(id).skip(uint64(2*n), uint64(2*n), Reason(r.IntN(3)))
		}
	}
	o.forgotten = 77
	stored := o.portions()
	for _, portion := range stored {
		if !restored.add(portion) {
			t.Fatal("a portion was refused")
		}
	}
	if again := restored.portions(); !slices.EqualFunc(again, stored, bytes.Equal) {
		t.Error("what was restored differs from what was stored")
	}
	whole := stored[0]
	for _, broken := range [][]byte{nil, whole[:5], whole[:len(whole)-1], whole[:8+16]} {
		if restored.add(broken) {
			t.Errorf("%d bytes of %d were accepted", len(broken), len(whole))
		}
	}
	var none origins
	if all := none.portions(); len(all) != 1 || !restored.add(all[0]) {
		t.Errorf("%d portions of empty origins", len(all))
	}
}

func TestAppliedMessage(t *testing.T) {
	t.Parallel()
	for _, want := range []applied{
		{},
		{mapID: [mapIDSize]byte{1, 2}, known: true, counter: 9, forgotten: 1 << 40},
		{known: true, counter: maxOrder, skips: []skip{{1, 2, ReasonMapFull}, {5, 1<<64 - 1, skipSome}}},
	} {
		m := zmtp.WireMessage(appendApplied(nil, &want))
		got, ok := parseApplied(m)
		if !ok || !isApplied(m) || got.mapID != want.mapID || got.known != want.known || got.counter != want.counter ||
			got.forgotten != want.forgotten || !slices.Equal(got.skips, want.skips) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	id, number := make([]byte, mapIDSize), make([]byte, 8)
	key := []byte(keyApplied)
	for i, frames := range [][][]byte{
		{key}, {key, id, number, number}, {key, id[1:], number, number, nil}, {key, id, number[1:], number, nil},
		{key, id, number, nil, nil}, {key, id, number, number, number}, {[]byte("REFUSED"), id, number, number, nil},
		{key, id, number, number, make([]byte, (maxSkips+1)*skipSize)}, {key, id, binary.BigEndian.AppendUint64(nil, maxOrder+1), number, nil},
	} {
		if _, ok := parseApplied(zmtp.AppendMessage(nil, frames...)); ok {
			t.Errorf("%d: taken", i)
		}
	}
	// A key of that name is no such message.
	if isApplied(zmtp.WireMessage(kvmsg.AppendRecord(nil, key, 1, make([]byte, kvmsg.UUIDSize), nil, []byte("v")))) {
		t.Error("a KVSYNC was taken for it")
	}
}

// The order numbers of a batch rise or are all 0: otherwise the first and the last one
// would not tell the ones between them.
func TestNumberOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want []uint64 }{
		{[]uint64{0, 0, 0}, []uint64{0, 0, 0}},
		{[]uint64{1, 2, 5}, []uint64{1, 2, 5}},
		{[]uint64{0, 1, 0}, []uint64{0, 0}},
		{[]uint64{5, 0, 5, 4, 6, 1 << 63, 1<<64 - 1, 0}, []uint64{5, 6, 1 << 63, 1<<64 - 1}},
	} {
		var o numberOrder
		var got []uint64
		for _, n := range test.in {
			if o.next(n) {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("of %d %d are in order, want %d", test.in, got, test.want)
		}
	}
}

// Only a client that announces that it numbers its updates is believed to: others may
// have anything in the sequence field. A client that breaks the order does not harm
// others.
func TestOnlyNumberingClientsAreNumbered(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c := newPlainClient(t, server)
	send := func(metadata map[string]string, numbers ...uint64) {
		p, err := sockets.NewPub(sockets.Options{Metadata: metadata, FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, Linger: hang})
		must(t, err)
		must(t, p.Connect(server.Endpoints().Collector))
		for _, n := range numbers {
			must(t, p.Send(ctx, []byte("k"), binary.BigEndian.AppendUint64(nil, n), make([]byte, kvmsg.UUIDSize), nil, binary.BigEndian.AppendUint64(nil, n)))
		}
		must(t, p.Close())
	}
	want := func(numbers ...uint64) {
		t.Helper()
		for _, n := range numbers {
			if m := c.next(); binary.BigEndian.Uint64([]byte(m.value)) != n {
				t.Fatalf("got %q, want %d", m.value, n)
			}
		}
	}
	send(nil, 5, 5, 4)
	want(5, 5, 4)
	member := func() map[string]string {
		return map[string]string{propertyCHP: announcement, propertyClient: newClientID(), propertyGeneration: "1"}
	}
	send(member(), 5, 5, 4) // an older client of ours
	want(5, 5, 4)
	hostile, honest := member(), member()
	hostile[propertyOrder], honest[propertyOrder] = "0", "0"
	send(hostile, 1<<63)
	want(1 << 63)
	send(hostile, 1, 2)
	send(honest, 1, 2, 3)
	want(1, 2, 3)
	hostile[propertyClient] = "not hexadecimal, and 32 bytes ..."[:clientIDSize]
	send(hostile, 2, 1)
	want(2, 1)
}

// To look for duplicates costs no allocation, nor does a Set at a server that counts,
// while everything comes back.
func TestOnceAllocatesNothing(t *testing.T) {
	q := sequencer{state: newMapState(0)}
	wire, spans := numberedBatch(rangeOf(1, 100)...)
	next := uint64(1)
	id := clientID{1}
	if n := testenv.Allocs(0, 100, func() {
		for _, s := range spans {
			kvmsg.Record(wire[s.Start:s.End]).SetSeq(int64(next))
			next++
		}
		if len(q.state.clients.once(id, wire, spans, q.state.last())) != len(spans) {
			t.Fatal("some were taken for repetitions")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestAllocExactSet(t *testing.T) {
	ctx := testContext(t)
	server := startServer(t, ServerOptions{HeartbeatInterval: hang})
	c := startClient(t, server, ClientOptions{})
	value := []byte("some value")
	const batch = 1000
	round := func() {
		before := c.Sequence()
		for range batch {
			if err := c.Set(ctx, "/some/key", value); err != nil {
				t.Fatal(err)
			}
		}
		for c.Sequence() < before+batch {
			if ctx.Err() != nil {
				t.Fatal(context.Cause(ctx))
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	if n := testenv.Allocs(100, 50, round); n > batch/10 {
		t.Errorf("%v allocations for %d updates", n, batch)
	}
}
