package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// maskCodec puts each frame behind its size and a running number, with its
// first bytes masked by that. A unit of size 0 stands for a message of inflated
// bytes, which is more than it has on the wire.
type maskCodec struct {
	out, in byte
	limit   int // largest unit that Decode takes, 0 for any
}

const (
	maskHeader = 5
	inflated   = 3 * buf.Large
)

var errMask = errors.New("running number")

func (c *maskCodec) MaxEncoded(size, count int) int { return size + maskHeader*count }

func (c *maskCodec) Encode(dst, frames []byte) ([]byte, error) {
	for rest := zmtp.WireMessage(frames); len(rest) > 0; {
		frame := rest
		_, rest = rest.Next()
		frame = frame[:len(frame)-len(rest)]
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(frame)))
		dst = append(append(dst, c.out), frame...)
		mask(dst[len(dst)-len(frame):], c.out)
		c.out++
	}
	return dst, nil
}

func (c *maskCodec) Decode(dst, wire []byte, limit int) (out []byte, used, need int, err error) {
	for most := len(dst) + limit; ; {
		if len(wire)-used < maskHeader {
			return dst, used, maskHeader, nil
		}
		size := int(binary.BigEndian.Uint32(wire[used:]))
		if c.limit > 0 && size > c.limit {
			return dst, used, maskHeader, zmtp.ErrTooLarge
		}
		switch need = maskHeader + size; {
		case wire[used+4] != c.in:
			return dst, used, need, errMask
		case len(wire)-used < need || len(dst) >= most:
			return dst, used, need, nil
		case size == 0:
			dst = append(zmtp.AppendHeader(dst, 0, inflated), make([]byte, inflated)...)
		}
		dst = append(dst, wire[used+maskHeader:used+need]...)
		mask(dst[len(dst)-size:], c.in)
		c.in++
		used += need
	}
}

func mask(data []byte, with byte) {
	for i := range data[:min(len(data), 20)] {
		data[i] ^= with
	}
}

// masked is frames as a maskCodec sends them.
func masked(t testing.TB, frames []byte) []byte {
	t.Helper()
	wire, err := new(maskCodec).Encode(nil, frames)
	must(t, err)
	return wire
}

// coded is a reader's source with a codec.
func (r *reader) coded() *codedSource {
	limit := min(r.pipe.socket.Config().MaxMessageSize, r.traits.MaxMessage)
	return &codedSource{reader: r, codec: &maskCodec{}, max: int(limit)}
}

// feedTo is reader.feed for any source.
func feedTo(src link.Source, data []byte, most int, idle func() bool) error {
	for len(data) > 0 {
		n := copy(src.Space(), data[:min(len(data), most)])
		data = data[n:]
		if err := src.Received(n); err != nil {
			return err
		}
		if idle() {
			src.Idle()
		}
	}
	return nil
}

func never() bool { return false }

// TestCodecSplit reads a script through a codec, in two parts split at every
// byte, and byte by byte.
func TestCodecSplit(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	frames, want := script()
	data := masked(t, frames)
	r := newRecorder(t, Config{})
	r.as.Ordered = true
	for _, waits := range []bool{false, true} {
		idle := func() bool { return waits }
		for split := range len(data) + 1 {
			r.got = nil
			rd := r.reader()
			src := rd.coded()
			most := len(data)
			if split == len(data) {
				most = 1
			}
			must(t, feedTo(src, data[:split], most, idle))
			must(t, feedTo(src, data[split:], most, idle))
			src.release()
			rd.end()
			if !slices.Equal(r.got, want) {
				t.Fatalf("split at %d: %q\nwant %q", split, r.got, want)
			}
		}
	}
}

// TestCodecSizes reads messages of all sizes in parts of all sizes, some of
// them from units that are smaller than the frames they stand for.
func TestCodecSizes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	r := newRecorder(t, Config{Send: unbounded})
	rd := r.reader()
	src := rd.coded()
	codec := &maskCodec{}
	var data []byte
	var want []string
	for _, size := range []int{100_000, 200_000, 10, buf.Large - 9, buf.Large, 0, 1 << 20, 5, 70_000} {
		for range 2 {
			frames := []string{strings.Repeat("x", rng.IntN(20)), strings.Repeat(string(rune('a'+rng.IntN(26))), max(size-rng.IntN(10), 0))}
			data, _ = codec.Encode(data, wire(frames...))
			want = append(want, show(frames...))
		}
		data = append(data, 0, 0, 0, 0, codec.out)
		codec.out++
		want = append(want, show(string(make([]byte, inflated))))
	}
	for len(data) > 0 {
		part := 1 + rng.IntN(1<<(4+rng.IntN(17)))
		must(t, feedTo(src, data[:min(part, len(data))], part, func() bool { return rng.IntN(2) == 0 }))
		data = data[min(part, len(data)):]
	}
	src.release()
	rd.end()
	if !slices.Equal(r.got, want) {
		t.Fatalf("%d messages come, or others, want %d", len(r.got), len(want))
	}
}

// TestCodecFault: the messages before a fault are delivered, and the codec's error ends
// the connection.
func TestCodecFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"of the codec":  {[]byte{0, 0, 0, 3, 77, 0, 0, 0}, errMask},
		"of the frames": {masked(t, slices.Concat(wire("good"), zmtp.AppendCommand(nil, "PING", nil)))[maskHeader+6:], zmtp.ErrMalformed},
	} {
		r := newRecorder(t, Config{})
		rd := r.reader()
		src := rd.coded()
		err := feedTo(src, append(masked(t, wire("good")), c.data...), 1000, never)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if !slices.Equal(r.got, []string{`["good"]`}) {
			t.Errorf("%s: %q came", name, r.got)
		}
		src.release()
		rd.end()
	}
}

// TestCodecLimit: the largest message passes, one that is announced as much
// larger is refused by its announcement, and so is a part of one.
func TestCodecLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for _, first := range []int{0, limit / 2} {
		r := newRecorder(t, Config{MaxMessageSize: limit})
		rd := r.reader()
		src := rd.coded()
		part := zmtp.AppendFrame(nil, make([]byte, first), true)
		largest := zmtp.AppendFrame(slices.Clone(part), make([]byte, limit-len(part)-9), false)
		must(t, feedTo(src, masked(t, largest), 1<<20, never))
		codec := src.codec.(*maskCodec)
		codec.in = 0
		must(t, feedTo(src, masked(t, part), 1<<20, never))
		larger := binary.BigEndian.AppendUint32(nil, uint32(limit-len(part)+codedExtra+1))
		err := feedTo(src, append(larger, codec.in), 10, never)
		var typed *zmtp.ProtocolError
		if !errors.Is(err, zmtp.ErrTooLarge) || !errors.As(err, &typed) || len(r.got) != 1 {
			t.Errorf("%v, %d messages", err, len(r.got))
		}
		src.release()
		rd.end()
	}
}

// TestCodecAnnouncement: allocations follow the arrived bytes, not the announced sizes;
// and an idle connection holds memory in proportion to the bytes that have arrived.
func TestCodecAnnouncement(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, Config{MaxMessageSize: MaxMessage})
	for _, arrived := range []int{0, 1, 100, keepTail, 20_000, 200_000, 2 << 20} {
		rd := r.reader()
		src := rd.coded()
		data := append([]byte{0x10, 0, 0, 0, 0}, make([]byte, arrived)...)
		must(t, feedTo(src, data, 1<<20, never))
		if n := len(src.chunk.Data()); n > 8*(arrived+minRead)+buf.Large {
			t.Errorf("a chunk of %d bytes for %d", n, len(data))
		}
		src.Idle()
		holds := cap(src.tail) + cap(rd.tail)
		if src.chunk != nil {
			holds += len(src.chunk.Data())
		}
		if rd.chunk != nil {
			holds += len(rd.chunk.Data())
		}
		if holds > 8*len(data) {
			t.Errorf("%d bytes of a unit hold %d", len(data), holds)
		}
		src.release()
		rd.end()
	}
}

// codedWriter returns a writer with a codec that has taken the messages of o.
func codedWriter(t testing.TB, o *queue.Outbox, c *conn) *writer {
	t.Helper()
	w := newWriter(c, &maskCodec{})
	if !o.Take(&w.load, nil, nil) {
		t.Fatal("nothing to take")
	}
	w.bufs = w.load.Gather(nil)
	return w
}

// TestCodecSend: the other side's codec decodes the bytes that a writer sends through a
// codec to the same frames, of any sizes.
func TestCodecSend(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	l := newLender()
	o := &newWriter(nil, nil).pipe.Out
	o.Pong([]byte("context"))
	want := zmtp.AppendPong(nil, []byte("context"))
	for i, size := range []int{0, 1, 255, 256, queue.LendFrom, codedPiece, 3 << 20, 5, 0} {
		for range 500 / (1 + size/100) {
			m := wire(fmt.Sprint(i), strings.Repeat("x", size))
			o.OfferWire(nil, m, 1, l)
			want = append(want, m...)
		}
	}
	w := codedWriter(t, o, ours)
	got := make(chan []byte)
	go func() {
		wire, err := io.ReadAll(theirs)
		if err != nil {
			t.Error(err)
		}
		frames, used, _, err := new(maskCodec).Decode(nil, wire, queue.Unbounded)
		if err != nil || used != len(wire) {
			t.Errorf("%d of %d bytes are used: %v", used, len(wire), err)
		}
		got <- frames
	}()
	written, err := w.sendCoded()
	if err != nil || written != int64(len(want)) {
		t.Errorf("%d of %d bytes: %v", written, len(want), err)
	}
	w.load.Clear()
	ours.Finish()
	if !bytes.Equal(<-got, want) {
		t.Error("other frames arrive")
	}
	if l.Refs.Load() != 0 {
		t.Errorf("%d references are left", l.Refs.Load())
	}
}

// TestCodecRemaining breaks a connection after every byte of a codec's output: the
// messages of which no byte was written remain, and no others.
func TestCodecRemaining(t *testing.T) {
	t.Parallel()
	messages := [][]byte{wire("1"), wire("2", "", "two"), wire(strings.Repeat("b", 300)), wire(""), wire("end")}
	pong := zmtp.AppendPong(nil, nil)
	// before is how much was sent whole in earlier pieces.
	for before := 0; before <= 2; before++ {
		sent := len(pong)
		for _, m := range messages[:before] {
			sent += len(m)
		}
		if before == 0 {
			sent = 0
		}
		var units []int // the sizes of the other pieces
		if before == 0 {
			units = append(units, maskHeader+len(pong))
		}
		total := slices.Max(append(units, 0))
		for _, m := range messages[before:] {
			n := len(m) + maskHeader*zmtp.WireMessage(m).Len()
			units = append(units, n)
			total += n
		}
		for n := 0; n <= total; n++ {
			o := &newWriter(nil, nil).pipe.Out
			o.Pong(nil)
			for _, m := range messages {
				o.OfferWire(nil, m, 1, nil)
			}
			w := codedWriter(t, o, nil)
			w.load.Written = int64(sent) + w.begun(int64(sent), int64(n))
			at, first := 0, before
			for i, size := range units {
				if at >= n {
					break
				}
				at += size
				if before > 0 || i > 0 {
					first++
				}
			}
			w.pipe.Out.Offer(nil, nil, [][]byte{[]byte("queued since")})
			w.pipe.Out.PutBack(&w.load)
			count := w.pipe.Out.Status().Messages
			got := drain(w.pipe)
			want := append(slices.Concat(messages[first:]...), wire("queued since")...)
			if !bytes.Equal(got, want) || count != len(messages)-first+1 {
				t.Fatalf("broken %d bytes after message %d: %d come again, want %d", n, before, count-1, len(messages)-first)
			}
		}
	}
}

// TestCodecSendBreaks: when the peer goes away, each message has been given to
// the kernel, at least in part, or comes again.
func TestCodecSendBreaks(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	must(t, ours.Stream.Conn.(*net.TCPConn).SetWriteBuffer(64<<10))
	must(t, theirs.SetReadBuffer(64<<10))
	const count, size = 200, 64 << 10
	o := &newWriter(nil, nil).pipe.Out
	for i := range count {
		o.OfferWire(nil, wire(fmt.Sprint(i), strings.Repeat("x", size)), 1, nil)
	}
	w := codedWriter(t, o, ours)
	go func() {
		_, _ = io.ReadFull(theirs, make([]byte, 10*size))
		_ = theirs.SetLinger(0)
		theirs.Close()
	}()
	written, err := w.sendCoded()
	if err == nil {
		t.Fatal("everything was sent")
	}
	w.load.Written = written
	w.pipe.Out.PutBack(&w.load)
	each := int64(len(wire("999", strings.Repeat("x", size))))
	if gone := int64(count - w.pipe.Out.Status().Messages); gone < 10 || gone != (written+each-1)/each {
		t.Errorf("%d messages are gone, %d bytes were written", gone, written)
	}
}

// TestAllocCodec: in steady state a codec's connection allocates nothing.
func TestAllocCodec(t *testing.T) {
	r := newRecorder(t, Config{Send: unbounded})
	r.prefix = "none"
	rd := r.reader()
	rd.ignore = true
	src := rd.coded()
	ours, theirs := connected(t)
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	w := newWriter(ours, &maskCodec{})
	messages := bytes.Repeat(wire("message", strings.Repeat("x", 1000)), 200)
	codec := &maskCodec{}
	var data []byte
	round := func() {
		data, _ = codec.Encode(data[:0], messages)
		must(t, feedTo(src, data, 50_000, never))
		w.pipe.Out.OfferWire(nil, messages, 200, nil)
		w.pipe.Out.Take(&w.load, nil, nil)
		w.bufs = w.load.Gather(w.bufs[:0])
		_, err := w.sendCoded()
		must(t, err)
		w.load.Clear()
	}
	for range 10 {
		round()
	}
	runtime.GC()
	if n := testenv.Allocs(0, 100, round); n >= 1 {
		t.Errorf("%v allocations for 200 messages in and out", n)
	}
	src.release()
	rd.end()
}

// TestSlowLargeMessage: a large message that arrives in small pieces is copied when it has
// doubled, and not for each piece, which would cost as much as all that has arrived.
func TestSlowLargeMessage(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	const size, piece = 8 << 20, 16 << 10
	for _, coded := range []bool{false, true} {
		r := newRecorder(t, Config{}).reader()
		var src link.Source = r
		data, chunk := wire(string(make([]byte, size))), &r.chunk
		if coded {
			c := r.coded()
			src, data, chunk = c, masked(t, data), &c.chunk
		}
		var last *buf.Chunk
		chunks := 0
		for len(data) > 0 {
			n := copy(src.Space(), data[:min(len(data), piece)])
			if *chunk != last {
				last = *chunk
				chunks++
			}
			must(t, src.Received(n))
			data = data[n:]
		}
		if chunks > 10 {
			t.Errorf("with a codec: %v: %d chunks for %d bytes", coded, chunks, size)
		}
	}
}
