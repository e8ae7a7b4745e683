package bench

import (
	"bytes"
	"fmt"
	"testing"

	"clustermap/zmtp"
)

// BenchmarkCodec encodes and decodes messages in the wire form of ZMTP 3, a buffer of at least
// 256 KiB in each iteration. A message has one frame, or five, as an update of CHP has:
// a key of 14 bytes, a sequence, an identifier, properties, and the value, which has the size.
//
// MB/s is of wire bytes, and so the reciprocal of the time per byte. Only encoding has it:
// decoding finds the frames and does not read their bodies, so its time does not depend on
// their size.
func BenchmarkCodec(b *testing.B) {
	for _, size := range []int{16, 64, 256, 1 << 10, 64 << 10, 1 << 20} {
		value := bytes.Repeat([]byte("v"), size)
		for _, frames := range [][][]byte{
			{value},
			{make([]byte, 14), make([]byte, 8), make([]byte, 16), nil, value},
		} {
			one := zmtp.AppendMessage(nil, frames...)
			count := max(256<<10/len(one), 1)
			wire := bytes.Repeat(one, count)
			bodies := 0 // bytes in the frames of a message
			for _, f := range frames {
				bodies += len(f)
			}
			run := func(op string, f func(b *testing.B)) {
				b.Run(fmt.Sprintf("op=%s/size=%d/frames=%d", op, size, len(frames)), func(b *testing.B) {
					b.ReportAllocs()
					f(b)
					ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
					b.ReportMetric(ns/float64(count*len(frames)), "ns/frame")
					b.ReportMetric(1e9/ns*float64(count), "msgs/s")
				})
			}
			run("encode", func(b *testing.B) {
				b.SetBytes(int64(len(wire)))
				buf := make([]byte, 0, len(wire))
				for b.Loop() {
					buf = buf[:0]
					for range count {
						buf = zmtp.AppendMessage(buf, frames...)
					}
				}
				if !bytes.Equal(buf, wire) {
					b.Fatal("the bytes are wrong")
				}
			})
			run("decode", func(b *testing.B) {
				d := zmtp.NewDecoder(zmtp.Limits{})
				var body []byte // of the last frame
				for b.Loop() {
					messages, seen, total := 0, 0, 0
					for rest := wire; ; messages++ {
						kind, n, err := d.Next(rest)
						if err != nil {
							b.Fatal(err)
						}
						if kind == zmtp.KindNeedMore {
							break
						}
						for m := zmtp.WireMessage(rest[:n]); len(m) > 0; seen++ {
							body, m = m.Next()
							total += len(body)
						}
						rest = rest[n:]
					}
					if messages != count || seen != count*len(frames) || total != count*bodies {
						b.Fatalf("%d messages, %d frames, %d bytes; want %d, %d, %d",
							messages, seen, total, count, count*len(frames), count*bodies)
					}
				}
				if !bytes.Equal(body, value) {
					b.Fatal("the value is wrong")
				}
			})
		}
	}
}
