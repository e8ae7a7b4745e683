package zmtp

import (
	"fmt"
	"testing"
)

func BenchmarkCurve(b *testing.B) {
	for _, size := range []int{16, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		client, server := codecPair(Limits{})
		frames := AppendMessage(nil, pattern(size))
		wire := make([]byte, 0, client.MaxEncoded(len(frames), 1))
		out := make([]byte, 0, len(frames))
		b.Run(fmt.Sprintf("Encode/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				wire, _ = client.Encode(wire[:0], frames)
			}
		})
		b.Run(fmt.Sprintf("Decode/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				server.in.seen = 0
				var err error
				if out, _, _, err = server.Decode(out[:0], wire, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
