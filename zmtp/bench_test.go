package zmtp

import (
	"strconv"
	"testing"
)

// fiveFrames is a message of five frames and 80 wire bytes, as a hashmap
// update has: key, sequence, identifier, properties, value.
func fiveFrames() []byte {
	return AppendMessage(nil, make([]byte, 14), make([]byte, 8), make([]byte, 16), nil, make([]byte, 32))
}

// fill returns as many copies of m as fit into size bytes, and their number.
func fill(m []byte, size int) (b []byte, count int) {
	for len(b)+len(m) <= size {
		b = append(b, m...)
		count++
	}
	return b, count
}

// BenchmarkDecode decodes a buffer of 256 KiB full of equal messages in each
// iteration, and reports the time per frame and per message.
func BenchmarkDecode(b *testing.B) {
	long := make([]byte, 1000)
	for _, c := range []struct {
		name    string
		message []byte
	}{
		{"5x80", fiveFrames()},
		{"1x16", AppendMessage(nil, make([]byte, 14))},
		{"5xLong", AppendMessage(nil, make([]byte, 14), make([]byte, 8), make([]byte, 16), nil, long)},
		{"200x400", AppendMessage(nil, make([][]byte, 200)...)},
	} {
		b.Run(c.name, func(b *testing.B) {
			buf, count := fill(c.message, 256<<10)
			frames := WireMessage(c.message).Len()
			d := NewDecoder(Limits{})
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				seen := 0
				for rest := buf; ; seen++ {
					kind, n, err := d.Next(rest)
					if err != nil {
						b.Fatal(err)
					}
					if kind == KindNeedMore {
						break
					}
					rest = rest[n:]
				}
				if seen != count {
					b.Fatal("messages seen:", seen, "of", count)
				}
			}
			perMessage := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(count)
			b.ReportMetric(perMessage, "ns/message")
			b.ReportMetric(perMessage/float64(frames), "ns/frame")
		})
	}
}

// BenchmarkWalk walks over the frames of one message with Next.
func BenchmarkWalk(b *testing.B) {
	m := WireMessage(fiveFrames())
	bytes := 0
	b.ReportAllocs()
	for b.Loop() {
		for rest := m; len(rest) > 0; {
			var body []byte
			body, rest = rest.Next()
			bytes += len(body)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/5, "ns/frame")
	if bytes != b.N*70 {
		b.Fatal("bytes seen:", bytes)
	}
}

func BenchmarkAppendMessage(b *testing.B) {
	for _, size := range []int{0, 16, 100, 1000} {
		b.Run("5x"+strconv.Itoa(size), func(b *testing.B) {
			body := make([]byte, size)
			buf := make([]byte, 0, 8192)
			b.SetBytes(int64(5 * FrameSize(size)))
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendMessage(buf[:0], body, body, body, body, body)
			}
		})
	}
}

func BenchmarkAppendFrame(b *testing.B) {
	body := make([]byte, 32)
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendFrame(buf[:0], body, false)
	}
}

func BenchmarkAppendSubscribe(b *testing.B) {
	topic := []byte("/client/")
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendSubscribe(buf[:0], topic)
	}
}

func BenchmarkAppendPing(b *testing.B) {
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendPing(buf[:0], 100, nil)
	}
}

// BenchmarkHandshake measures one side of a complete NULL handshake.
func BenchmarkHandshake(b *testing.B) {
	c := HandshakeConfig{SocketType: TypeDealer}
	in := NewHandshake(HandshakeConfig{SocketType: TypeRouter}).Start(nil)
	in = append(in, "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"...)
	out := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		h := NewHandshake(c)
		out = h.Start(out[:0])
		n, out, _, err := h.Step(in, out)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, done, err := h.Step(in[n:], out); !done {
			b.Fatal("not done", err)
		}
	}
}
