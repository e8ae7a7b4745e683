package sockets

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"clustermap/internal/queue"
	"clustermap/internal/testenv"
)

// TestPubLogConcurrent: with several senders, and peers that come and go,
// everyone gets all of each sender's messages in order.
func TestPubLogConcurrent(t *testing.T) {
	t.Parallel()
	const senders = 3
	messages := testenv.Rounds(3000)
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{FullPolicy: PolicyBlock, SendHWM: 100})
	var subs []*Sub
	for range 4 {
		subs = append(subs, subscribed(t, Options{}, pub.LastEndpoint(), ""))
	}
	fickle := subscribed(t, Options{}, pub.LastEndpoint(), "")
	var wg sync.WaitGroup
	defer wg.Wait()
	for s := range senders {
		wg.Go(func() {
			var batch [][]byte
			for i := range messages {
				body := binary.BigEndian.AppendUint32([]byte{byte(s)}, uint32(i))
				if s == 0 {
					if batch = append(batch, body); len(batch) < 50 {
						continue
					}
					if _, err := pub.SendBatch(ctx, batch); err != nil {
						t.Error(err)
						return
					}
					batch = batch[:0]
				} else if err := pub.Send(ctx, append(body, make([]byte, i*i%(2*queue.LendFrom))...)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	wg.Go(func() {
		for subscribed := true; ; subscribed = !subscribed {
			select {
			case <-done:
				return
			default:
			}
			if subscribed {
				fickle.Unsubscribe("")
			} else {
				fickle.Subscribe("")
			}
			for {
				if _, err := fickle.TryRecv(); err != nil {
					break
				}
			}
			runtime.Gosched()
		}
	})
	var readers sync.WaitGroup
	for i, sub := range subs {
		readers.Go(func() {
			var next [senders]uint32
			for n := 0; n < senders*messages; n++ {
				m, err := sub.Recv(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				s, number := m[0][0], binary.BigEndian.Uint32(m[0][1:])
				if number != next[s] {
					t.Errorf("subscriber %d: message %d of sender %d came for %d", i, number, s, next[s])
					return
				}
				next[s]++
			}
		})
	}
	readers.Wait()
	close(done)
}

// TestPubLogWakes: a writer that sleeps, or has retired, is there again for the
// next message.
func TestPubLogWakes(t *testing.T) {
	t.Parallel()
	pub := bind(t, NewPub, Options{})
	var subs []*Sub
	for range 3 {
		subs = append(subs, subscribed(t, Options{}, pub.LastEndpoint(), ""))
	}
	for i := range 300 {
		if i%3 == 0 {
			pub.core.Retire()
			pub.core.Retire()
		}
		if i%50 == 0 {
			time.Sleep(time.Millisecond)
		}
		must(t, pub.Send(testContext(t), fmt.Append(nil, i)))
		for _, sub := range subs {
			if got := received(t, sub, 1); got[0] != fmt.Sprint(i) {
				t.Fatalf("%q came for %d", got, i)
			}
		}
	}
}

// TestPubLogLinger: Close waits for followers that have not read everything.
func TestPubLogLinger(t *testing.T) {
	t.Parallel()
	const messages = 5000
	pub := bind(t, NewPub, Options{SendHWM: -1, Linger: LingerForever}) // one takes nothing while another is read
	var subs []*Sub
	for range 3 {
		subs = append(subs, subscribed(t, Options{RecvHWM: 10}, pub.LastEndpoint(), ""))
	}
	for i := range messages {
		must(t, pub.Send(testContext(t), binary.BigEndian.AppendUint32(make([]byte, 1000), uint32(i))))
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { must(t, pub.Close()) })
	for _, sub := range subs {
		for i := range messages {
			m, err := sub.Recv(testContext(t))
			must(t, err)
			if n := binary.BigEndian.Uint32(m[0][1000:]); n != uint32(i) {
				t.Fatalf("message %d came for %d", n, i)
			}
		}
	}
}
