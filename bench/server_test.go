package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/hooks"
	"clustermap/internal/loopback"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// servers counts the servers with an inproc endpoint, each of which has its own name.
var servers atomic.Int64

// serve starts a server at a transport, which ends with the benchmark, and returns its
// endpoints.
func serve(b *testing.B, transport string) chp.Endpoints {
	b.Helper()
	at, stop := startServer(b, transport)
	b.Cleanup(stop)
	return at
}

// startServer starts a server at a transport, and returns its endpoints and a function
// that ends it.
func startServer(b *testing.B, transport string) (at chp.Endpoints, stop func()) {
	b.Helper()
	endpoint := map[string]string{
		"tcp":    fmt.Sprintf("tcp://%s:*", loopback.Own()),
		"ipc":    "ipc://*",
		"inproc": fmt.Sprintf("inproc://server%d", servers.Add(1)),
	}[transport]
	s, err := chp.NewServer(chp.ServerOptions{Endpoints: []string{endpoint}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Listen(b.Context()); err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	<-s.Ready()
	return s.Endpoints(), func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		if err := <-served; err != nil {
			b.Error(err)
		}
	}
}

// serverKeys is how many keys BenchmarkServer updates.
const serverKeys = 10_000

// update is the i-th KVSET of a stream: its key and its value, of which the first 8
// bytes are i.
func update(i int, key, value []byte) (_, _ []byte) {
	binary.LittleEndian.PutUint64(value, uint64(i))
	return fmt.Appendf(key[:0], "/bench/%05d", uint32(i)*2654435761>>8%serverKeys), value
}

// receiveUpdates receives n KVPUBs, and checks that they are the updates in their order,
// with sequences one after the other.
func receiveUpdates(ctx context.Context, from receiver, size, n int) error {
	var batch sockets.Batch
	defer batch.Release()
	key, want := make([]byte, 0, 32), make([]byte, size)
	sequence := uint64(0)
	for i := 0; i < n; {
		if err := from.RecvBatch(ctx, &batch); err != nil {
			return err
		}
		for m := range batch.Len() {
			var frames [5][]byte // key, sequence, UUID, properties, value
			rest := batch.Message(m)
			for f := range frames {
				if len(rest) > 0 {
					frames[f], rest = rest.Next()
				}
			}
			if string(frames[0]) == "HUGZ" {
				continue
			}
			key, want = update(i, key, want)
			if len(rest) > 0 || !bytes.Equal(frames[0], key) || !bytes.Equal(frames[4], want) || len(frames[1]) != 8 {
				return fmt.Errorf("update %d is %q with a value of %d bytes", i, frames[0], len(frames[4]))
			}
			got := binary.BigEndian.Uint64(frames[1])
			if i > 0 && got != sequence+1 {
				return fmt.Errorf("sequence %d after %d", got, sequence)
			}
			sequence = got
			i++
		}
	}
	return nil
}

// BenchmarkServer sends updates of 10,000 keys through a server in this process, as
// KVSETs of a PUB, to SUBs that receive the KVPUBs. The publisher has them encoded
// already, a hundred at a time, so that most of the time goes to the server. msgs/s
// counts updates, however many subscribers receive them.
func BenchmarkServer(b *testing.B) {
	for _, t := range transports {
		for _, size := range []int{32, 1 << 10} {
			for _, subscribers := range []int{1, 16} {
				b.Run(fmt.Sprintf("transport=%s/size=%d/subscribers=%d", t.name, size, subscribers), func(b *testing.B) {
					at := serve(b, t.name)
					from := make([]receiver, subscribers)
					for i := range from {
						sub := opened(b, sockets.NewSub, sockets.Options{})
						closeAtEnd(b, sub)
						from[i] = sub
						if err := sub.Subscribe(""); err != nil {
							b.Fatal(err)
						}
						if err := sub.Connect(at.Publisher); err != nil {
							b.Fatal(err)
						}
						if err := sub.WaitSubscribed(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
					pub := opened(b, sockets.NewPub, sockets.Options{FullPolicy: sockets.PolicyBlock})
					closeAtEnd(b, pub)
					if err := pub.Connect(at.Collector); err != nil {
						b.Fatal(err)
					}
					if err := pub.WaitSubscribers(b.Context(), "", 1); err != nil {
						b.Fatal(err)
					}
					run(b, func(ctx context.Context) error { return publish(ctx, pub, size, b.N) }, subscribers,
						func(ctx context.Context, i int) error { return receiveUpdates(ctx, from[i], size, b.N) })
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
				})
			}
		}
	}
}

// publish sends n KVSETs, a hundred with each call.
func publish(ctx context.Context, pub *sockets.Pub, size, n int) error {
	const perCall = 100
	key, value := make([]byte, 0, 32), make([]byte, size)
	sequence, uuid := make([]byte, 8), make([]byte, 16)
	var wire []byte
	for i := 0; i < n; i += perCall {
		wire = wire[:0]
		count := min(n-i, perCall)
		for j := range count {
			key, value = update(i+j, key, value)
			wire = zmtp.AppendMessage(wire, key, sequence, uuid, nil, value)
		}
		if err := hooks.SendWire(ctx, pub, wire, count, nil); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkSetSync has a client in the server's process set keys, each after the last one has
// come back in the client's replica. The percentiles are of that time.
func BenchmarkSetSync(b *testing.B) {
	for _, t := range transports {
		b.Run(fmt.Sprintf("transport=%s/size=32", t.name), func(b *testing.B) {
			client, err := chp.NewClient(chp.ClientOptions{Servers: []string{serve(b, t.name).Snapshot}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := client.Close(); err != nil {
					b.Error(err)
				}
			})
			ctx, cancel := context.WithTimeout(b.Context(), limit)
			defer cancel()
			if err := client.WaitActive(ctx); err != nil {
				b.Fatal(err)
			}
			key, value := make([]byte, 0, 32), make([]byte, 32)
			took, last := make(times, 0, b.N), int64(0)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				key, value = update(i, key, value)
				begun := time.Now()
				sequence, err := client.SetSync(ctx, string(key), value)
				took = append(took, time.Since(begun))
				if err != nil {
					b.Fatal(err)
				}
				if sequence <= last {
					b.Fatalf("sequence %d after %d", sequence, last)
				}
				last = sequence
			}
			b.StopTimer()
			if got, _ := client.Get(string(key)); !bytes.Equal(got, value) {
				b.Fatalf("%s has %x, want %x", key, got, value)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			took.percentiles(b)
		})
	}
}
