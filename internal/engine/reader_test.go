package engine

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// recorder is a socket that records the messages of its peers.
type recorder struct {
	Socket
	got    []string // messages and commands, in the order they came
	prefix string   // of the messages that it delivers to the inbox
	as     Pattern
}

func newRecorder(t testing.TB, c Config) *recorder {
	r := new(recorder)
	r.as.Messages, r.as.Command = r.messages, r.command
	r.Init(zmtp.TypeDealer, filled(c), &r.as)
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) command(_ *Pipe, _ *Peer, name string, data []byte) error {
	r.got = append(r.got, name+" "+string(data))
	return nil
}

func (r *recorder) messages(_ *Pipe, _ *Peer, b *Batch) (bool, error) {
	kept := b.q.Spans[:0]
	for i, span := range b.q.Spans {
		var frames []string
		for rest := b.Message(i); len(rest) > 0; {
			var body []byte
			body, rest = rest.Next()
			frames = append(frames, string(body))
		}
		if r.prefix != "" && strings.HasPrefix(frames[0], r.prefix) {
			kept = append(kept, span)
		}
		r.got = append(r.got, show(frames...))
	}
	b.q.Spans = kept
	return true, nil
}

// show is a message as text, its long frames by size and sum.
func show(frames ...string) string {
	for i, f := range frames {
		if len(f) > 100 {
			frames[i] = fmt.Sprintf("%d bytes, %08x", len(f), crc32.ChecksumIEEE([]byte(f)))
		}
	}
	return fmt.Sprintf("%q", frames)
}

// reader makes a reader without a network: tests put the bytes where it
// would have them read to.
func (r *recorder) reader() *reader {
	p := NewPipe(&r.Socket, "", false)
	c, _ := newConn(nil, r.Config()) // fails only with a connection
	rd := &reader{pipe: p, peer: &Peer{pipe: p, conn: c}, conn: c, traits: &r.as}
	rd.decoder.SetLimits(zmtp.Limits{MaxMessage: r.Config().MaxMessageSize})
	return rd
}

// feed has the reader receive bytes, at most most at a time, waiting for more
// after each part with the given chance.
func (r *reader) feed(data []byte, most int, idle func() bool) error {
	for len(data) > 0 {
		n := copy(r.Space(), data[:min(len(data), most)])
		data = data[n:]
		if err := r.Received(n); err != nil {
			return err
		}
		if idle() {
			r.Idle()
		}
	}
	return nil
}

// script is messages and commands of all kinds, and the records of them that a recorder
// must make.
func script() (data []byte, want []string) {
	add := func(frames ...string) {
		data = append(data, wire(frames...)...)
		want = append(want, show(frames...))
	}
	add("")
	add("1", "", strings.Repeat("a", 255))
	data = zmtp.AppendSubscribe(data, []byte("topic"))
	want = append(want, "SUBSCRIBE topic")
	add(strings.Repeat("b", 256), "two")
	data = zmtp.AppendPing(data, 0, []byte("answered"))
	// Commands between the frames of a message come before it.
	data = zmtp.AppendFrame(data, []byte("one"), true)
	data = zmtp.AppendPing(data, 0, nil)
	data = zmtp.AppendCancel(data, []byte("inside"))
	data = zmtp.AppendFrame(data, []byte("more"), true)
	data = zmtp.AppendFrame(data, []byte("last"), false)
	want = append(want, "CANCEL inside", `["one" "more" "last"]`)
	add(slices.Repeat([]string{"x"}, 100)...)
	data = zmtp.AppendCommand(data, "UNKNOWN", []byte("data"))
	want = append(want, "UNKNOWN data")
	add("end")
	return data, want
}

// TestReaderSplit reads a script in two parts, split at every byte, and byte
// by byte.
func TestReaderSplit(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	data, want := script()
	for _, waits := range []bool{false, true} {
		idle := func() bool { return waits }
		for split := range data {
			r := newRecorder(t, Config{})
			r.as.Ordered = true
			rd := r.reader()
			must(t, rd.feed(data[:split], len(data), idle))
			must(t, rd.feed(data[split:], len(data), idle))
			rd.end()
			if !slices.Equal(r.got, want) {
				t.Fatalf("split at %d: %q\nwant %q", split, r.got, want)
			}
		}
		r := newRecorder(t, Config{})
		r.as.Ordered = true
		rd := r.reader()
		must(t, rd.feed(data, 1, idle))
		if !slices.Equal(r.got, want) {
			t.Fatalf("byte by byte: %q\nwant %q", r.got, want)
		}
		pong := zmtp.AppendPong(zmtp.AppendPong(nil, []byte("answered")), nil)
		if got := drain(rd.pipe); !bytes.Equal(got, pong) {
			t.Errorf("PINGs are answered by %q, want %q", got, pong)
		}
		if rd.peer.conduit.MessagesIn.Load() != 6 {
			t.Errorf("%d messages are counted", rd.peer.conduit.MessagesIn.Load())
		}
		rd.end()
	}
}

// TestReaderSizes reads messages of all sizes in parts of all sizes: those that
// straddle the end of a chunk, and those that need several.
func TestReaderSizes(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	r := newRecorder(t, Config{Send: unbounded})
	r.prefix = " " // nothing is delivered
	rd := r.reader()
	var data []byte
	var want []string
	for _, size := range []int{100_000, 200_000, 10, buf.Large - 9, buf.Large, 0, 3 << 20, 5, 5 << 20, 1 << 20, 70_000} {
		for range 3 {
			frames := []string{strings.Repeat("x", rng.IntN(20)), strings.Repeat(string(rune('a'+rng.IntN(26))), max(size-rng.IntN(10), 0))}
			data = append(data, wire(frames...)...)
			want = append(want, show(frames...))
		}
	}
	for len(data) > 0 {
		part := 1 + rng.IntN(1<<(4+rng.IntN(17)))
		must(t, rd.feed(data[:min(part, len(data))], part, func() bool { return rng.IntN(2) == 0 }))
		data = data[min(part, len(data)):]
	}
	rd.end()
	if !slices.Equal(r.got, want) {
		t.Fatalf("%d messages come, or others, want %d", len(r.got), len(want))
	}
}

// TestReaderDelivers: received messages stay unchanged while the reader goes on reading
// into the same and other chunks. With the tag "invariants" released chunks are poisoned.
func TestReaderDelivers(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	ctx := testContext(t)
	rng := rand.New(rand.NewPCG(6, 6))
	r := newRecorder(t, Config{Send: unbounded})
	r.prefix = "n"
	rd := r.reader()
	var held []*Batch
	next := 0
	check := func(b *Batch) {
		for i := range b.Len() {
			rest := b.Message(i)
			number, rest := rest.Next()
			body, _ := rest.Next()
			if string(number) != fmt.Sprint("n", next) || !bytes.Equal(body, bytes.Repeat([]byte{byte(next)}, len(body))) {
				t.Fatalf("message %d is %q with %.20q", next, number, body)
			}
			next++
		}
		b.Release()
	}
	for i := range 5000 {
		size := rng.IntN(1 << rng.IntN(15))
		data := wire(fmt.Sprint("n", i), string(bytes.Repeat([]byte{byte(i)}, size)))
		data = append(data, wire("other", strings.Repeat("o", rng.IntN(1<<rng.IntN(13))))...)
		must(t, rd.feed(data, 1+rng.IntN(20_000), func() bool { return rng.IntN(3) == 0 }))
		for r.In.Waiting() {
			b := new(Batch)
			must(t, r.TakeBatch(ctx, b))
			held = append(held, b)
		}
		for len(held) > rng.IntN(50) {
			check(held[0])
			held = held[1:]
		}
	}
	for _, b := range held {
		check(b)
	}
	rd.end()
}

// TestReaderFault: the messages before a fault are delivered, the fault is
// typed, and nothing after it counts.
func TestReaderFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"a command with MORE":    {[]byte{zmtp.FlagCommand | zmtp.FlagMore, 0}, zmtp.ErrMalformed},
		"a command without name": {[]byte{zmtp.FlagCommand, 0}, zmtp.ErrMalformed},
		"a short PING":           {zmtp.AppendCommand(nil, "PING", []byte{0}), zmtp.ErrMalformed},
		"a size of 2^62":         {[]byte{zmtp.FlagLong, 0x40, 0, 0, 0, 0, 0, 0, 0}, zmtp.ErrTooLarge},
		"a size of 2^63":         {[]byte{zmtp.FlagLong, 0x80, 0, 0, 0, 0, 0, 0, 0}, zmtp.ErrTooLarge},
		"ERROR":                  {zmtp.AppendError(nil, "reason"), zmtp.ErrRefused},
		"a bad ERROR":            {zmtp.AppendCommand(nil, "ERROR", []byte("\x09short")), zmtp.ErrMalformed},
	} {
		for _, limit := range []int64{0, 1000, MaxMessage} {
			r := newRecorder(t, Config{MaxMessageSize: limit})
			rd := r.reader()
			err := rd.feed(slices.Concat(wire("good"), c.data, wire("after")), 1000, func() bool { return false })
			var typed *zmtp.ProtocolError
			if !errors.As(err, &typed) || !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if !slices.Equal(r.got, []string{`["good"]`}) {
				t.Errorf("%s: %q came", name, r.got)
			}
			rd.end()
		}
	}
}

// TestReaderLimit: a message of exactly the largest size passes, one byte
// more does not, and it is refused by its announcement.
func TestReaderLimit(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	r := newRecorder(t, Config{MaxMessageSize: limit})
	rd := r.reader()
	never := func() bool { return false }
	must(t, rd.feed(wire(strings.Repeat("x", limit-9)), limit, never))
	err := rd.feed(wire(strings.Repeat("x", limit-8))[:9], limit, never)
	if !errors.Is(err, zmtp.ErrTooLarge) || len(r.got) != 1 {
		t.Errorf("%v, %d messages", err, len(r.got))
	}
	rd.end()
}

// TestReaderIdle: a connection that waits holds memory in proportion to the part of a
// message that its peer has sent.
func TestReaderIdle(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	r := newRecorder(t, Config{})
	data := wire(strings.Repeat("x", 10<<20))
	for _, pending := range []int{0, 1, 100, keepTail, keepTail + 1, 20_000, 33_000, 200_000, 300_000, 2 << 20, 9 << 20} {
		rd := r.reader()
		r.got = nil
		must(t, rd.feed(slices.Concat(slices.Repeat(wire("y"), 1000), data[:pending]), 1<<20, func() bool { return false }))
		rd.Idle()
		holds := cap(rd.tail)
		if rd.chunk != nil {
			holds += len(rd.chunk.Data())
		}
		if holds > 8*pending {
			t.Errorf("%d bytes of a message hold %d", pending, holds)
		}
		if cap(rd.batch.q.Spans) > keepSpans {
			t.Errorf("room for %d spans is held", cap(rd.batch.q.Spans))
		}
		must(t, rd.feed(data[pending:], 1<<20, func() bool { return false }))
		if len(r.got) != 1001 {
			t.Errorf("%d messages came", len(r.got))
		}
		rd.end()
	}
}

// TestReaderAnnouncement: allocations follow the arrived bytes, not the announced sizes.
func TestReaderAnnouncement(t *testing.T) {
	r := newRecorder(t, Config{MaxMessageSize: MaxMessage})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		rd := r.reader()
		must(t, rd.feed(append([]byte{zmtp.FlagLong, 0, 0, 0, 0, 0x10, 0, 0, 0}, make([]byte, 1000)...), 10, func() bool { return false }))
		if n := len(rd.chunk.Data()); n > buf.Large {
			t.Fatalf("a chunk of %d bytes for 1009", n)
		}
		rd.Idle()
		rd.end()
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// TestReaderCost: the inbox counts the memory that its chunks keep, and that is
// not many times the size of the queued messages, with any other bytes of the peer and
// however they are cut into reads.
func TestReaderCost(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	text := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		kept, other []byte
	}{
		"tiny messages":    {wire("n"), nil},
		"small messages":   {wire("n", text[:1000]), nil},
		"larger messages":  {wire("n", text[:5000]), nil},
		"parts of a chunk": {wire("n", text[:buf.Large/stayPart]), nil},
		"much is filtered": {wire("n", "x"), bytes.Repeat(wire("o", text[:100]), 1000)},
		"much is commands": {wire("n", text[:5000]), bytes.Repeat(zmtp.AppendPing(nil, 0, nil), 20_000)},
		"large messages":   {wire("n", text), nil},
	} {
		for _, idle := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/idle=", idle), func(t *testing.T) {
				t.Parallel()
				r := newRecorder(t, Config{Send: unbounded})
				r.prefix = "n"
				rd := r.reader()
				const n = 100
				for range n {
					must(t, rd.feed(slices.Concat(c.kept, c.other), 50_000, func() bool { return idle }))
					r.got = nil
				}
				chunks := map[*buf.Chunk]bool{}
				holds := 0
				counted, _, _ := r.In.Look(&rd.pipe.In)
				for r.In.Waiting() {
					var b queue.Batch
					must(t, r.In.TakeBatch(testContext(t), nil, &b))
					holds += spanCost * len(b.Spans)
					if !chunks[b.Chunk] {
						chunks[b.Chunk] = true
						holds += len(b.Chunk.Data())
					}
				}
				if counted.Bytes != holds {
					t.Errorf("%d bytes are held, %d are counted", holds, counted.Bytes)
				}
				if most := n*(stayPart*len(c.kept)+512+spanCost) + buf.Large; holds > most {
					t.Errorf("%d bytes are held by %d of messages", holds, n*len(c.kept))
				}
				rd.end()
			})
		}
	}
}

// TestReaderStops: a reader whose connection was told to end reads no further,
// however much there is to read.
func TestReaderStops(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, Config{})
	rd := r.reader()
	rd.conn.Close(nil)
	if err := rd.feed(wire("x"), 10, func() bool { return false }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	rd.end()
}

// TestReaderUsualSize: once a message has arrived, the buffer for one like it is
// made at once and not in steps; for a larger one it still grows as that
// arrives.
func TestReaderUsualSize(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	const size = 1 << 20
	r := newRecorder(t, Config{}).reader()
	feed := func(data []byte) (largest int) {
		for len(data) > 0 {
			n := copy(r.Space(), data)
			largest = max(largest, len(r.chunk.Data()))
			must(t, r.Received(n))
			data = data[n:]
		}
		return largest
	}
	begun := wire(string(make([]byte, size)))[:64<<10]
	if got := feed(begun); got >= size {
		t.Errorf("%d bytes have arrived, and the chunk has %d", len(begun), got)
	}
	feed(make([]byte, size+9-len(begun)))
	if got := feed(begun); got < size {
		t.Errorf("a message of %d bytes was there before, and the chunk for the next has %d", size, got)
	}
	feed(make([]byte, size+9-len(begun)))
	begun = wire(string(make([]byte, 64<<20)))[:64<<10]
	if got := feed(begun); got >= 8<<20 {
		t.Errorf("%d bytes have arrived, and the chunk has %d", len(begun), got)
	}
}

// TestReaderGives: large messages for an application that receives one by one are read into
// chunks of their own, without a copy and with little memory beside them, however they are
// cut into reads and whatever is between them.
func TestReaderGives(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	r := newRecorder(t, Config{Send: unbounded})
	r.prefix = "n"
	rd := r.reader()
	r.gives.Store(true)
	const most = 3000 // bytes of a read
	next, given := 0, 0
	for i := range 400 {
		number := fmt.Sprint("n", i)
		sizes := []int{giveFrom, giveFrom + rng.IntN(100), 1 << 16, 8192*(5+rng.IntN(20)) - 9 - rng.IntN(3), 20_000, 1 << 20, rng.IntN(giveFrom), rng.IntN(100)}
		body := bytes.Repeat([]byte{byte(i)}, sizes[rng.IntN(len(sizes))])
		frames := []string{number, string(body)}
		large := false // it gets a chunk of its own
		if rng.IntN(5) == 0 {
			frames = append(frames, string(body), "end")
		} else if len(body) >= giveFrom {
			large = true
		}
		var data []byte
		for i, frame := range frames {
			for range rng.IntN(3) { // libzmq sends them there
				data = zmtp.AppendPing(data, 0, nil)
			}
			data = zmtp.AppendFrame(data, []byte(frame), i < len(frames)-1)
		}
		for range rng.IntN(3) {
			data = append(data, wire("other", strings.Repeat("o", rng.IntN(1<<rng.IntN(17))))...)
		}
		if rng.IntN(4) == 0 {
			data = zmtp.AppendPing(data, 0, nil)
		}
		must(t, rd.feed(data, 1+rng.IntN(most), func() bool { return rng.IntN(20) == 0 }))
		for r.In.Waiting() {
			m, err := r.In.TakeQueued()
			must(t, err)
			was, whole := m.Wire(), len(m.Chunk.Data())
			last := &was[len(was)-1]
			got := r.Own(&m, 0, nil)
			if len(got) != len(frames) || string(got[0]) != number || !bytes.Equal(got[1], body) || string(got[len(got)-1]) != frames[len(frames)-1] {
				t.Fatalf("message %d is %d frames, the first %q", next, len(got), got[0])
			}
			if len(got) == 2 && len(got[1]) > 0 && last == &got[1][len(got[1])-1] {
				given++
				if beside := whole - len(was); beside >= 8<<10 {
					t.Errorf("a message of %d bytes keeps %d beside it", len(body), beside)
				}
			} else if large {
				t.Errorf("message %d of %d bytes was copied", next, len(body))
			}
			next++
		}
	}
	rd.end()
	if next != 400 || given < 100 {
		t.Errorf("%d messages came, %d of them without a copy", next, given)
	}
}

// TestReaderGivesWhatHasArrived: before an eighth of it has arrived, a message gets no chunk of its
// size, even if the one before it was as large.
func TestReaderGivesWhatHasArrived(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	const size = 16 << 20
	r := newRecorder(t, Config{Recv: unbounded})
	r.gives.Store(true)
	rd := r.reader()
	data := wire(string(make([]byte, size)))
	always := func() bool { return false }
	for range 2 {
		for _, arrived := range []int{9, 1000, 100_000, size/idlePart - 1<<17} {
			must(t, rd.feed(data[:arrived], 1<<16, always))
			if n := len(rd.chunk.Data()); n > max(buf.Large, 8<<20) {
				t.Errorf("%d bytes have arrived, and the chunk has %d", arrived, n)
			}
			rd.Idle()
			if rd.chunk != nil && len(rd.chunk.Data()) > idlePart*arrived {
				t.Errorf("%d bytes have arrived, and the waiting connection holds %d", arrived, len(rd.chunk.Data()))
			}
			must(t, rd.feed(data[arrived:], 1<<20, always))
		}
	}
	rd.end()
}

// TestReaderManyFrames: a message of many frames is read in large reads and copied to a larger chunk a
// few times, as often as it has doubled, whatever the last one was.
func TestReaderManyFrames(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	for _, c := range []struct {
		frames, size int
		before       int // size of the message before it
		gives        bool
	}{
		{1000, 1000, 0, true},
		{1000, 1000, giveFrom, true},
		{30_000, 1000, giveFrom, true},
		{30_000, 1000, 0, false},
		{60_000, 20, 1 << 20, true},
		{600, 60_000, giveFrom, true},
		{600, 60_000, 0, false},
		{30_000, 0, giveFrom, true},
	} {
		r := newRecorder(t, Config{})
		r.gives.Store(c.gives)
		rd := r.reader()
		must(t, rd.feed(wire(string(make([]byte, c.before))), 1<<20, func() bool { return false }))
		data := wire(slices.Repeat([]string{strings.Repeat("x", c.size)}, c.frames)...)
		size := len(data)
		reads, moves, copied, chunk := 0, 0, 0, rd.chunk
		for len(data) > 0 {
			pending := rd.pending()
			n := copy(rd.Space(), data)
			if rd.chunk != chunk {
				chunk = rd.chunk
				moves++
				copied += pending
			}
			data = data[n:]
			must(t, rd.Received(n))
			reads++
		}
		rd.end()
		if len(r.got) != 2 || copied > 4*size || reads > 20+size>>12+3*moves {
			t.Errorf("%+v: %d messages in %d reads; %d of %d bytes were copied to %d chunks", c, len(r.got), reads, copied, size, moves)
		}
	}
}

// TestReaderReadsLittleBeyondAMessage: what is read beyond a large message fits in an ordinary chunk,
// which does not count: the next one begins with all of its memory to be counted.
func TestReaderReadsLittleBeyondAMessage(t *testing.T) {
	t.Parallel()
	for _, gives := range []bool{false, true} {
		for _, frames := range [][]string{{strings.Repeat("x", 1<<20)}, {"head", strings.Repeat("x", 1<<20)}, slices.Repeat([]string{strings.Repeat("x", 300_000)}, 7)} {
			r := newRecorder(t, Config{})
			r.gives.Store(gives)
			rd := r.reader()
			const messages = 10
			data := bytes.Repeat(wire(frames...), messages)
			for got := 0; len(data) > 0; got = len(r.got) {
				n := copy(rd.Space(), data)
				data = data[n:]
				must(t, rd.Received(n))
				if len(r.got) > got && rd.pending() > buf.Large {
					t.Errorf("%d frames, given away: %t: %d bytes beyond a message", len(frames), gives, rd.pending())
				}
			}
			rd.end()
			if len(r.got) != messages {
				t.Errorf("%d messages", len(r.got))
			}
		}
	}
}

// TestGivesToPlainCalls: only an application that takes large messages singly gets them in chunks of their
// own; for batches, chunks hold several and are used again.
func TestGivesToPlainCalls(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	r := newRecorder(t, Config{Send: unbounded})
	r.prefix = "n"
	rd := r.reader()
	data := wire("n", string(make([]byte, 100_000)))
	for _, c := range []struct {
		plain, want bool
	}{{false, false}, {true, true}, {true, true}, {false, false}, {false, false}, {true, true}} {
		must(t, rd.feed(data, 10_000, func() bool { return false }))
		if c.plain {
			m, err := r.In.TakeQueued()
			must(t, err)
			r.Own(&m, 0, nil)
		} else {
			var b Batch
			must(t, r.TakeBatch(testContext(t), &b))
			b.Release()
		}
		if r.gives.Load() != c.want {
			t.Errorf("%+v: the next message gets a chunk of its own: %t", c, !c.want)
		}
	}
	rd.end()
}

// TestOwnCopiesLargeMessages: a large message that is not in a chunk of its own is copied to one:
// the memory in which it came is not the application's.
func TestOwnCopiesLargeMessages(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	r := newRecorder(t, Config{})
	body := bytes.Repeat([]byte("x"), giveFrom)
	for name, chunk := range map[string]*buf.Chunk{"pooled": buf.Get(1 << 20), "shared": buf.Exact(giveFrom + 9), "lent": buf.Wrap(wire(string(body)), nil)} {
		n := copy(chunk.Data(), wire(string(body)))
		chunk.Retain()
		m := queue.Single{Chunk: chunk, Span: buf.Span{End: uint32(n)}}
		got := r.Own(&m, 0, []byte("lead"))
		clear(chunk.Data())
		if !chunk.Unique() {
			t.Errorf("%s: Own has not released its reference", name)
		}
		chunk.Release()
		if len(got) != 2 || string(got[0]) != "lead" || !bytes.Equal(got[1], body) || cap(got[1]) != len(body) {
			t.Errorf("%s: %d frames, or others", name, len(got))
		}
	}
}
