package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"clustermap/internal/bench/worker"
)

// ErrStalled is returned by Await when no peer has made progress for Group.Patience.
var ErrStalled = errors.New("no progress")

// Group is a parent's peers. One goroutine uses it.
type Group struct {
	// Command returns a new command that runs [Serve]. The group sets its
	// standard input and output; standard error is the caller's to set.
	Command func() *exec.Cmd

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
	Name string

	cmd    *exec.Cmd
	in     io.WriteCloser
	events map[Kind]Event // the latest of each kind
	exited chan struct{}
}

// arrival is an event, or the end, of a child.
type arrival struct {
	child *Child
	event Event
	ended bool
	err   error // why it ended
}

// Start starts a peer and gives it its task.
func (g *Group) Start(name string, t Task) (*Child, error) {
	if g.events == nil {
		g.events = make(chan arrival)
	}
	cmd := g.Command()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the %s: %w", name, err)
	}
	c := &Child{Name: name, cmd: cmd, in: in, events: map[Kind]Event{}, exited: make(chan struct{})}
	g.children = append(g.children, c)
	g.readers.Go(func() { g.read(c, out) })
	return c, c.write(t)
}

// read passes on a child's events and then the end of its output.
func (g *Group) read(c *Child, out io.Reader) {
	d := json.NewDecoder(out)
	for {
		var e Event
		if d.Decode(&e) != nil {
			break
		}
		g.events <- arrival{child: c, event: e}
	}
	err := c.cmd.Wait()
	close(c.exited)
	g.events <- arrival{child: c, ended: true, err: err}
}

// Tell sends a command to each child.
func (g *Group) Tell(command Command, to ...*Child) error {
	for _, c := range to {
		if err := c.write(command); err != nil {
			return err
		}
	}
	return nil
}

func (c *Child) write(line any) error {
	if err := json.NewEncoder(c.in).Encode(line); err != nil {
		return fmt.Errorf("the %s is gone: %w", c.Name, err)
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
	case a.ended && a.err != nil:
		return fmt.Errorf("the %s ended: %w", c.Name, a.err)
	case a.ended:
		return fmt.Errorf("the %s ended before its time", c.Name)
	case e.Kind == Failed:
		return worker.Failed(c.Name, e.Error, e.Missing)
	case e.Kind == Progress && g.OnProgress != nil:
		g.OnProgress(c, e.Count)
	}
	c.events[e.Kind] = e
	return nil
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
		c.in.Close()
	}
	events := g.events
	go func() {
		g.readers.Wait()
		close(events)
	}()
	force := time.AfterFunc(grace+time.Second, func() {
		for _, c := range g.children {
			select {
			case <-c.exited:
			default:
				c.cmd.Process.Kill()
			}
		}
	})
	defer force.Stop()
	for range g.events {
		// Receive the remaining events, so that readers do not block.
	}
	g.children, g.events = nil, nil
}
