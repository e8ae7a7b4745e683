package chp

import (
	"fmt"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// BenchmarkServer sends b.N updates of 32 bytes over 10,000 keys through a
// server on the loopback interface to one plain subscriber, all in one
// process, and verifies number and order of the updates that arrive.
func BenchmarkServer(b *testing.B) {
	ctx := testContext(b)
	s := startServer(b, ServerOptions{})
	pub, err := sockets.NewPub(sockets.Options{FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, SendHWM: -1, SendHWMBytes: 4 << 20, Linger: 30 * time.Second})
	must(b, err)
	defer pub.Close()
	must(b, pub.Connect(s.Endpoints().Collector))
	sub, err := sockets.NewSub(sockets.Options{RecvHWM: -1})
	must(b, err)
	defer sub.Close()
	must(b, sub.Subscribe("/"))
	must(b, sub.Subscribe(""))
	must(b, sub.Connect(s.Endpoints().Publisher))
	must(b, sub.WaitSubscribed(ctx))
	keys := make([][]byte, 10_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "/bench/%07d", i)
	}
	seq, uuid, value := make([]byte, 8), make([]byte, 16), make([]byte, 32)
	must(b, pub.WaitSubscribers(ctx, "", 1))
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		r := uint32(1)
		for range b.N {
			r = r*1664525 + 1013904223
			_ = pub.Send(ctx, keys[int(uint64(r)*uint64(len(keys))>>32)], seq, uuid, nil, value)
		}
	}()
	var batch sockets.Batch
	var last int64
	for n := 0; n < b.N; {
		must(b, sub.RecvBatch(ctx, &batch))
		for i := range batch.Len() {
			r := kvmsg.Record(batch.Message(i))
			if string(r.Key()) == "HUGZ" {
				continue
			}
			if seq := r.Seq(); last != 0 && seq != last+1 {
				b.Fatalf("sequence %d after %d", seq, last)
			} else {
				last = seq
			}
			n++
		}
	}
	batch.Release()
}
