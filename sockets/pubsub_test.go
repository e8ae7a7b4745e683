package sockets

import (
	"fmt"
	"testing"
)

func TestPubSub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := open(t, NewPub, Options{})
	must(t, pub.Bind(ctx, "tcp://127.0.0.1:*"))
	sub := open(t, NewSub, Options{})
	must(t, sub.Subscribe("a"))
	must(t, sub.Connect(pub.LastEndpoint()))
	must(t, sub.WaitSubscribed(ctx))
	for i := range 100 {
		must(t, pub.Send(ctx, []byte("b"), []byte("no")))
		must(t, pub.Send(ctx, []byte("a"), fmt.Append(nil, i)))
	}
	for i := range 100 {
		m, err := sub.Recv(ctx)
		must(t, err)
		if len(m) != 2 || string(m[0]) != "a" || string(m[1]) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m)
		}
	}
}

func TestRouterDealer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := open(t, NewRouter, Options{})
	must(t, router.Bind(ctx, "tcp://127.0.0.1:*"))
	dealer := open(t, NewDealer, Options{Identity: []byte("me")})
	must(t, dealer.Connect(router.LastEndpoint()))
	for i := range 100 {
		must(t, dealer.Send(ctx, fmt.Append(nil, i), make([]byte, i*1000)))
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[0]) != "me" || len(m[2]) != i*1000 {
			t.Fatalf("%q", m[0])
		}
		must(t, router.Send(ctx, m...))
		m, err = dealer.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint(i) || len(m[1]) != i*1000 {
			t.Fatalf("%q", m[0])
		}
	}
}

func BenchmarkPubSub(b *testing.B) {
	ctx := testContext(b)
	pub := open(b, NewPub, Options{FullPolicy: Block, SendHWM: -1, SendHWMOctets: 4 << 20})
	must(b, pub.Bind(ctx, "tcp://127.0.0.1:*"))
	sub := open(b, NewSub, Options{RecvHWM: -1, RecvHWMOctets: 4 << 20})
	must(b, sub.Subscribe(""))
	must(b, sub.Connect(pub.LastEndpoint()))
	must(b, sub.WaitSubscribed(ctx))
	f := [][]byte{make([]byte, 14), make([]byte, 8), make([]byte, 16), nil, make([]byte, 32)}
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			_ = pub.Send(ctx, f...)
		}
	}()
	var batch Batch
	n, batches := 0, 0
	for n < b.N {
		must(b, sub.RecvBatch(ctx, &batch))
		n += batch.Len()
		batches++
	}
	batch.Release()
	b.ReportMetric(float64(n)/float64(batches), "msgs/batch")
}
