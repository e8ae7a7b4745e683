package submit

import (
	"context"
	"fmt"
	"testing"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/buf"
)

// nowhere takes updates and drops them.
type nowhere struct{ fakeServer }

func (n *nowhere) Open() (Uplink, error) { return n, nil }

func (*nowhere) Send(bool, []byte, int, *buf.Chunk, bool) error { return nil }

// BenchmarkPut measures what a Set does after its checks, with a server to which sending
// costs nothing. The updates do not come back.
func BenchmarkPut(b *testing.B) {
	w := New(Options{
		SendQueue: 4 << 20, MaxValue: 1 << 20, Subtrees: subtree.New([]string{"/own"}),
		Sequence: func() int64 { return 0 },
		Wait:     func(context.Context) error { return context.DeadlineExceeded },
	})
	defer w.Close()
	w.Begin(&Server{Session: &nowhere{fakeServer{known: true}}, Ours: true, MaxValue: 1 << 20})
	keys := make([][]byte, 10_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "/bench/%05d", i)
	}
	ctx, value := b.Context(), make([]byte, 32)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := w.Put(ctx, keys[i%len(keys)], value, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}
