package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"clustermap/internal/bench/worker"
)

// ErrStalled is returned by Await when no peer has made progress for Group.Patience.
var ErrStalled = errors.New("no progress")

// Group is a parent's peers. One goroutine uses it.
type Group struct {
	// Patience is how long Await waits while no peer makes progress.
	Patience time.Duration
	// OnProgress, if not nil, is called when the count of a peer changes.
	OnProgress func(c *Child, count uint64)

	children []*Child
	events   chan arrival
	readers  sync.WaitGroup
}

// Child is the parent's end of the link to one peer.
type Child struct {
	worker *worker.Worker
	events map[Kind]Event // the latest of each kind
}

// arrival is an event, or the end, of a child.
type arrival struct {
	child *Child
	event Event
	err   error // why it ended
}

// Start starts a peer, which has a name in errors, with its task.
func (g *Group) Start(name string, t Task) (*Child, error) {
	if g.events == nil {
		g.events = make(chan arrival)
	}
	w, err := worker.Start(context.Background(), t.Role, t)
	if err != nil {
		return nil, err
	}
	w.Name = name
	c := &Child{w, map[Kind]Event{}}
	g.children = append(g.children, c)
	g.readers.Go(func() { g.read(c) })
	return c, nil
}

// read passes on a child's events and then its end.
func (g *Group) read(c *Child) {
	for {
		a := arrival{child: c}
		if a.err = c.worker.Next(&a.event); a.err == nil {
			g.events <- a
			continue
		}
		if !errors.Is(a.err, io.EOF) {
			c.worker.Kill() // it may go on, and nobody reads any more
		}
		// How it ended says more than that its output has.
		if err := c.worker.Wait(); errors.Is(a.err, io.EOF) && err != nil {
			a.err = err
		}
		g.events <- a
		return
	}
}

// Tell sends a command to each child.
func (g *Group) Tell(command Command, to ...*Child) error {
	for _, c := range to {
		if err := c.worker.Tell(string(command)); err != nil {
			return err
		}
	}
	return nil
}

// Await waits until each of the children has sent an event of the kind, before or during
// the call. It returns an error if a child of the group fails or ends, ErrStalled if none
// makes progress, and the error of ctx when it ends.
func (g *Group) Await(ctx context.Context, want Kind, from ...*Child) error {
	stalled := time.NewTimer(g.Patience)
	defer stalled.Stop()
	for !all(want, from) {
		select {
		case a := <-g.events:
			if err := g.take(a); err != nil {
				return err
			}
			stalled.Reset(g.Patience)
		case <-stalled.C:
			return fmt.Errorf("%w for %v while waiting for %q", ErrStalled, g.Patience, want)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func all(want Kind, from []*Child) bool {
	for _, c := range from {
		if _, ok := c.events[want]; !ok {
			return false
		}
	}
	return true
}

func (g *Group) take(a arrival) error {
	c, e := a.child, a.event
	switch {
	case a.err != nil:
		return a.err
	case e.Kind == Failed:
		return fmt.Errorf("the %s failed: %s", c.worker.Name, e.Error)
	case e.Kind == Progress && g.OnProgress != nil:
		g.OnProgress(c, e.Count)
	}
	c.events[e.Kind] = e
	return nil
}

// Kill kills a child, as kill -9 does, and returns when it has ended. What the others have sent
// meanwhile is dropped.
func (g *Group) Kill(ctx context.Context, c *Child) error {
	c.worker.Kill()
	for {
		select {
		case a := <-g.events:
			switch {
			case a.err != nil && a.child == c:
				return nil
			case a.err != nil:
				return a.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Event returns the latest event of the kind that c sent, after Await has seen
// it.
func (c *Child) Event(kind Kind) Event { return c.events[kind] }

// Stop asks every child to end, waits for it, and kills it after a while. A second call
// does nothing.
func (g *Group) Stop() {
	if len(g.children) == 0 {
		return
	}
	for _, c := range g.children {
		c.worker.End()
	}
	events := g.events
	go func() {
		g.readers.Wait()
		close(events)
	}()
	for range events {
		// Receive the remaining events, so that readers do not block.
	}
	g.children, g.events = nil, nil
}
