package link

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"clustermap/internal/bench/worker"
)

// progressInterval is the time between two events of kind Progress.
const progressInterval = 200 * time.Millisecond

// Role is the work of a peer. It returns when the work is done, or soon after
// peer.Context ends.
type Role func(peer *Peer) error

// Peer is a peer's own end of the link.
type Peer struct {
	Task

	// Count is the number of updates that the peer has sent or received. The parent
	// watches it for progress. The peer stores it once per batch.
	Count atomic.Uint64

	ctx context.Context
	say func(any)
}

// Worker returns the worker that has a role. After its work it waits until the parent ends
// it.
func (role Role) Worker() worker.Role {
	return worker.For(func(t Task, say func(any)) error {
		p := &Peer{Task: t, ctx: worker.Context(), say: say}
		go p.progress()
		stop, err := worker.Profile(p.Profile)
		if err == nil {
			err = errors.Join(role(p), stop())
		}
		if err != nil && p.ctx.Err() == nil {
			return err
		}
		<-p.ctx.Done()
		return nil
	})
}

// progress reports changes of Count.
func (p *Peer) progress() {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for last := uint64(0); ; {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
			if count := p.Count.Load(); count != last {
				last = count
				p.Send(Event{Kind: Progress, Count: count})
			}
		}
	}
}

// Context ends when the parent wants the peer to end, or has ended itself.
func (p *Peer) Context() context.Context { return p.ctx }

// Send sends an event to the parent.
func (p *Peer) Send(e Event) { p.say(e) }

// errStopped is returned to roles whose parent has ended.
var errStopped = errors.New("the parent has ended")

// Await waits for the command. It drops commands that arrive before it.
func (p *Peer) Await(want Command) error {
	for {
		text, ok := worker.Hear()
		if !ok {
			return errStopped
		}
		if text == string(want) {
			return nil
		}
	}
}
