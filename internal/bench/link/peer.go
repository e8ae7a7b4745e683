package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/bench/worker"
)

// grace is the time that a peer has to end after it was asked to.
const grace = 5 * time.Second

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

	ctx      context.Context
	commands chan Command

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// Serve runs the role that the parent at the other end of in and out asks for. It returns
// when the parent has closed in.
func Serve(in io.Reader, out io.Writer, roles map[string]Role) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &Peer{ctx: ctx, commands: make(chan Command, 16), out: json.NewEncoder(out)}
	lines := json.NewDecoder(in)
	if err := lines.Decode(&p.Task); err != nil {
		return fmt.Errorf("no task from the parent: %w", err)
	}
	role, ok := roles[p.Role]
	if !ok {
		return fmt.Errorf("unknown role %q", p.Role)
	}
	go func() {
		defer cancel()
		for {
			var c Command
			if lines.Decode(&c) != nil {
				// The parent has closed the input, or has ended. A role that does
				// not notice must not keep the process alive.
				time.AfterFunc(grace, func() { os.Exit(1) })
				return
			}
			p.commands <- c
		}
	}()
	go p.progress()

	stop, err := worker.Profile(p.Profile)
	if err == nil {
		err = errors.Join(role(p), stop())
	}
	if err != nil && ctx.Err() == nil {
		p.Send(Event{Kind: Failed, Error: err.Error(), Missing: errors.Is(err, worker.ErrMissing)})
	}
	// The parent reads to the end and judges every error.
	<-ctx.Done()
	return nil
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

// Send sends an event to the parent. It ignores errors: if the parent is gone, nothing
// can act on them.
func (p *Peer) Send(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Encode(e)
}

// errStopped is returned to roles whose parent has ended.
var errStopped = errors.New("the parent has ended")

// Await waits for the command. It drops commands that arrive before it.
func (p *Peer) Await(want Command) error {
	for {
		select {
		case c := <-p.commands:
			if c == want {
				return nil
			}
		case <-p.ctx.Done():
			return errStopped
		}
	}
}
