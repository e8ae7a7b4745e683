package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// inOrder checks messages of several senders: each comes once, and those of a sender in
// their order.
type inOrder struct {
	t    *testing.T
	what string
	next []int // of each sender
	peer []*Peer
}

// sentAs is message n of a sender: two frames, the second of any size.
func sentAs(from, n int) [][]byte {
	size := []int{0, 3, 100, 700, 4096, 9000}[(n*7+from)%6]
	if n%3 > 0 {
		size %= 128
	}
	return [][]byte{fmt.Appendf(nil, "%d %d", from, n), bytes.Repeat([]byte{byte(n)}, size)}
}

func (r *inOrder) take(m [][]byte, peer *Peer) {
	var from, n int
	if len(m) != 2 {
		r.t.Fatalf("%s: %d frames", r.what, len(m))
	}
	if _, err := fmt.Sscanf(string(m[0]), "%d %d", &from, &n); err != nil {
		r.t.Fatalf("%s: %.40q: %v", r.what, m[0], err)
	}
	if n != r.next[from] {
		r.t.Fatalf("%s: %d of %d came instead of %d", r.what, n, from, r.next[from])
	}
	r.next[from]++
	if want := sentAs(from, n); !bytes.Equal(m[1], want[1]) {
		r.t.Fatalf("%s: %d of %d has %d bytes that are not as sent", r.what, n, from, len(m[1]))
	}
	if peer != nil {
		r.peer[from] = peer
	}
}

// TestReceiveCallsMixed: with the receive calls in any order, each message comes once, those of
// a sender in their order, and the counts of its connection are right after each call.
func TestReceiveCallsMixed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seeds := 400
	if testing.Short() {
		seeds = 100
	}
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := Options{Inproc: &Inproc{}, SendHWM: 1 + rng.IntN(60)}
		pull := open(t, NewPull, Options{Inproc: o.Inproc, RecvHWM: 1 + rng.IntN(60)})
		must(t, pull.Bind(ctx, "inproc://mixed"))
		senders := make([]*Push, 1+rng.IntN(3))
		sent := make([]int, len(senders))
		for i := range senders {
			senders[i] = open(t, NewPush, o)
			must(t, senders[i].Connect("inproc://mixed"))
		}
		r := &inOrder{t: t, next: make([]int, len(senders)), peer: make([]*Peer, len(senders))}
		var kept []Message // of Recv, and what they should be
		var into Message
		var b Batch
		var leaving sync.WaitGroup
		poller := &Poller{}
		for step := range 60 {
			op := rng.IntN(12)
			r.what = fmt.Sprintf("seed %d, step %d, operation %d", seed, step, op)
			switch op {
			case 0, 1, 2: // as many as there is room for
				i := rng.IntN(len(senders))
				for n := rng.IntN(30); n > 0 && senders[i] != nil && senders[i].TrySend(sentAs(i, sent[i])...) == nil; n-- {
					sent[i]++
				}
			case 3, 4, 5:
				for range 1 + rng.IntN(20) {
					m, peer, err := pull.TryRecvFrom()
					if errors.Is(err, ErrWouldBlock) {
						break
					}
					must(t, err)
					r.take(m, peer)
					kept = append(kept, m)
				}
			case 6:
				if pull.Events()&PollIn != 0 {
					must(t, pull.RecvInto(ctx, &into))
					r.take(into, nil)
				}
			case 7:
				if pull.Events()&PollIn != 0 {
					must(t, pull.RecvBatch(ctx, &b))
					for i := range b.Len() {
						r.take(b.Message(i).AppendFrames(nil), b.Peer())
					}
				}
			case 8:
				if left := rng.IntN(6); pull.Events()&PollIn != 0 {
					for m, err := range pull.Messages(ctx) {
						must(t, err)
						r.take(m, nil)
						if left--; left < 0 || pull.Events()&PollIn == 0 {
							break
						}
					}
				}
			case 9:
				if rng.IntN(5) == 0 {
					poller.Close()
				} else if must(t, poller.Add(pull, PollIn)); pull.Events()&PollIn != 0 {
					_, err := poller.Wait(ctx)
					must(t, err)
				}
			case 10:
				if rng.IntN(5) == 0 {
					pull.Readable()
				}
			case 11:
				if i := rng.IntN(len(senders)); rng.IntN(10) == 0 && senders[i] != nil {
					s := senders[i]
					senders[i] = nil
					leaving.Go(func() { must(t, s.CloseContext(ctx)) })
				}
			}
			for i, p := range r.peer {
				if p == nil || senders[i] == nil { // the counts of one that leaves change
					continue
				}
				if s := p.Stats(); int(s.MessagesIn) != r.next[i]+s.PendingMessages {
					t.Fatalf("%s: sender %d: %d received, %d pending, of %d", r.what, i, r.next[i], s.PendingMessages, s.MessagesIn)
				}
			}
		}
		for i, n := range sent { // the rest, in order
			r.what = fmt.Sprintf("seed %d, in the end", seed)
			for r.next[i] < n {
				m, peer, err := pull.RecvFrom(ctx)
				must(t, err)
				r.take(m, peer)
			}
		}
		for _, m := range kept {
			var from, n int
			fmt.Sscanf(string(m[0]), "%d %d", &from, &n)
			if want := sentAs(from, n); !bytes.Equal(m[1], want[1]) {
				t.Fatalf("seed %d: %s changed after it was received", seed, m[0])
			}
		}
		leaving.Wait()
		b.Release()
		poller.Close()
		for _, s := range senders {
			if s != nil {
				must(t, s.Close())
			}
		}
		must(t, pull.Close())
	}
}

// TestReceiveCallsAtOnce: receive calls of all kinds in several goroutines, over tcp and
// inproc: each message comes once.
func TestReceiveCallsAtOnce(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{anyPort, "inproc://at-once"} {
		ctx, cancel := context.WithCancel(testContext(t))
		o := Options{Inproc: &Inproc{}}
		pull := open(t, NewPull, o)
		must(t, pull.Bind(ctx, endpoint))
		const peers, each = 2, 4000
		var all sync.WaitGroup
		for p := range peers {
			push := open(t, NewPush, o)
			must(t, push.Connect(pull.LastEndpoint()))
			all.Go(func() {
				for n := range each {
					must(t, push.Send(ctx, sentAs(p, n)...))
				}
			})
		}
		var mu sync.Mutex
		seen := map[string]bool{}
		got := func(m [][]byte) {
			mu.Lock()
			defer mu.Unlock()
			if seen[string(m[0])] {
				t.Errorf("%s: %s came twice", endpoint, m[0])
			}
			seen[string(m[0])] = true
			if len(seen) == peers*each {
				cancel()
			}
		}
		for g := range 6 {
			all.Go(func() {
				var into Message
				var b Batch
				defer b.Release()
				for {
					var err error
					switch g {
					case 0, 1, 2:
						var m Message
						if m, err = pull.Recv(ctx); err == nil {
							got(m)
						}
					case 3:
						if err = pull.RecvInto(ctx, &into); err == nil {
							got(into)
						}
					case 4:
						if err = pull.RecvBatch(ctx, &b); err == nil {
							for i := range b.Len() {
								got(b.Message(i).AppendFrames(nil))
							}
						}
					case 5:
						for m, e := range pull.Messages(ctx) {
							if err = e; err != nil {
								break
							}
							if got(m); len(m[1])%5 == 0 {
								break
							}
						}
					}
					if err != nil {
						return
					}
				}
			})
		}
		all.Wait()
		if len(seen) != peers*each {
			t.Errorf("%s: %d messages", endpoint, len(seen))
		}
		cancel()
		must(t, pull.Close())
	}
}
