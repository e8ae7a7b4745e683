package blackbox

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"clustermap/internal/hooks"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestKeep: a kept batch does not change after Handle, counts for its worker's queue, and
// can be released by any goroutine, also after Close.
func TestKeep(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			pub := publisher(t, anyPort)
			kept := make(chan *Batch, 100)
			b := open(t, Options{
				Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(1), Workers: workers, QueueBatches: 2,
				Handle: func(b *Batch) { b.Keep(); kept <- b },
			})
			next := 0
			sendOne := func() {
				send(t, pub, item("topic", next))
				next++
			}
			check := func(b *Batch, n int) {
				if topic, got := parse(b.Message(0)); b.Len() != 1 || topic != "topic" || got != n {
					t.Errorf("a batch of %d messages with %q %d, want %d", b.Len(), topic, got, n)
				}
			}
			sendOne()
			first := <-kept
			sendOne()
			second := <-kept
			sendOne()
			waits := func(n uint64) {
				t.Helper()
				eventually(t, "the shard waits", func() bool {
					for _, w := range b.Stats().Shards[0].Workers {
						if w.Waits == n && w.Held == 2 {
							return true
						}
					}
					return false
				})
			}
			// The third waits until one of the others is released.
			waits(1)
			if len(kept) > 0 {
				t.Fatal("a third batch came")
			}
			check(first, 0)
			check(second, 1)
			var releasing sync.WaitGroup
			releasing.Go(second.Release)
			releasing.Wait()
			third := <-kept
			check(first, 0)
			check(third, 2)
			// Close ends the wait for room.
			sendOne()
			waits(2)
			must(t, b.Close())
			if received, given, dropped := sum(b.Stats()); received != 4 || given != 3 || dropped != 1 {
				t.Errorf("%d received, %d given, %d dropped", received, given, dropped)
			}
			check(first, 0)
			check(third, 2)
			first.Release()
			third.Release()
			defer func() {
				if recover() == nil {
					t.Error("a batch can be released twice")
				}
			}()
			third.Release()
		})
	}
}

// TestQueueBytes: the bound in bytes holds; a larger batch is accepted alone.
func TestQueueBytes(t *testing.T) {
	t.Parallel()
	const size = 300 << 10 // more than one read returns
	pub := publisher(t, anyPort)
	hold := make(chan struct{})
	var mu sync.Mutex
	got := 0
	b := open(t, Options{
		Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(1), Workers: 1, QueueBytes: size,
		Handle: func(b *Batch) {
			<-hold
			mu.Lock()
			defer mu.Unlock()
			for i := range b.Len() {
				body, _ := b.Message(i).Next()
				if want := bytes.Repeat([]byte{byte(got)}, size); !bytes.Equal(body, want) {
					t.Errorf("message %d has changed", got)
				}
				got++
			}
		},
	})
	for i := range 10 {
		send(t, pub, zmtp.AppendMessage(nil, bytes.Repeat([]byte{byte(i)}, size)))
	}
	eventually(t, "the shard waits", func() bool { return b.Stats().Shards[0].Workers[0].Waits > 0 })
	if w := b.Stats().Shards[0].Workers[0]; w.Held != 1 || w.HeldBytes < size {
		t.Errorf("%d batches of %d bytes are held", w.Held, w.HeldBytes)
	}
	close(hold)
	eventually(t, "all have come", func() bool { mu.Lock(); defer mu.Unlock(); return got == 10 })
}

// TestAllocHandle: messages do not cause allocations, with any number of workers.
func TestAllocHandle(t *testing.T) {
	var wire []byte
	const count = 1000
	for i := range count {
		wire = append(wire, item(fmt.Sprintf("%c/%d", 'A'+i%26, i%100), i)...)
	}
	for _, size := range [][2]int{{1, 0}, {1, 1}, {1, 5}, {3, 2}} {
		pub, err := sockets.NewPub(sockets.Options{FullPolicy: sockets.PolicyBlock, SendHWM: -1, Linger: sockets.LingerNone})
		must(t, err)
		ctx := testContext(t)
		must(t, pub.Bind(ctx, anyPort))
		handled := make(chan int, count)
		b, err := New(Options{
			Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(size[0]), Workers: size[1],
			Handle: func(b *Batch) { handled <- b.Len() },
		})
		must(t, err)
		must(t, b.WaitSubscribed(ctx))
		round := func() {
			must(t, hooks.SendWire(ctx, pub, wire, count, nil))
			for n := 0; n < count; {
				n += <-handled
			}
		}
		if n := testenv.Allocs(100, 200, round); n != 0 {
			t.Errorf("%d shards with %d workers: %v allocations for %d messages", size[0], size[1], n, count)
		}
		must(t, b.Close())
		must(t, pub.Close())
	}
}
