package sockets

import (
	"context"
	"slices"
	"sync"
)

// balancer sends each message to the next peer, in turn, that has room.
type balancer struct {
	mu    sync.Mutex
	pipes []*pipe
	next  int
	room  gate // senders wait here while no pipe takes a message
	done  <-chan struct{}
}

func (lb *balancer) init(done <-chan struct{}) {
	lb.room = newGate()
	lb.done = done
}

func (lb *balancer) add(p *pipe) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.pipes = append(lb.pipes, p)
	lb.room.wake()
}

func (lb *balancer) remove(p *pipe) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	i := slices.Index(lb.pipes, p)
	if i < 0 {
		return
	}
	lb.pipes = slices.Delete(lb.pipes, i, i+1)
	if i < lb.next {
		lb.next--
	}
}

func (lb *balancer) roomy() {
	lb.mu.Lock()
	lb.room.wake()
	lb.mu.Unlock()
}

func (lb *balancer) send(ctx context.Context, frames [][]byte) error {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for {
		select {
		case <-lb.done:
			return ErrClosed
		default:
		}
		for range lb.pipes {
			if lb.next >= len(lb.pipes) {
				lb.next = 0
			}
			p := lb.pipes[lb.next]
			lb.next++
			if p.out.offer(nil, frames) == accepted {
				if lb.room.waiters > 0 {
					lb.room.wake() // there may be room for the others too
				}
				return nil
			}
		}
		if err := lb.room.wait(ctx, &lb.mu, lb.done); err != nil {
			return err
		}
	}
}
