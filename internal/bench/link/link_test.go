package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"clustermap/internal/bench/worker"
)

func TestMain(m *testing.M) {
	roles := map[string]worker.Role{}
	for name, role := range map[string]Role{
		"echo": func(p *Peer) error {
			p.Send(Event{Kind: Ready, Servers: p.Servers})
			if err := p.Await(Go); err != nil {
				return err
			}
			p.Count.Store(7)
			p.Send(Event{Kind: Done, First: 3})
			return nil
		},
		"fail":   func(*Peer) error { return errors.New("on purpose") },
		"crash":  func(*Peer) error { os.Exit(9); return nil },
		"silent": func(p *Peer) error { <-p.Context().Done(); return nil },
		"garbled": func(p *Peer) error {
			p.say("no event")
			<-p.Context().Done()
			return nil
		},
		"chatty": func(p *Peer) error {
			fmt.Println("no line of a worker")
			<-p.Context().Done()
			return nil
		},
		"deaf": func(*Peer) error { select {} },
	} {
		roles[name] = role.Worker()
	}
	worker.Main(roles)
	os.Exit(m.Run())
}

func newGroup(t *testing.T) *Group {
	g := &Group{Patience: time.Minute}
	t.Cleanup(g.Stop)
	return g
}

func start(t *testing.T, g *Group, role string) *Child {
	t.Helper()
	c, err := g.Start(role, Task{Role: role, Servers: []string{"here"}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConversation(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	progress := map[*Child]uint64{}
	g.OnProgress = func(c *Child, count uint64) { progress[c] = count }
	a, b := start(t, g, "echo"), start(t, g, "echo")
	if err := g.Await(t.Context(), Ready, a, b); err != nil {
		t.Fatal(err)
	}
	if s := a.Event(Ready).Servers; len(s) != 1 || s[0] != "here" {
		t.Errorf("the peer was told to connect to %q", s)
	}
	// Done of b does not come before Go, although a is done.
	for _, c := range []*Child{a, b} {
		if err := g.Tell(Go, c); err != nil {
			t.Fatal(err)
		}
		if err := g.Await(t.Context(), Done, c); err != nil {
			t.Fatal(err)
		}
	}
	if first := b.Event(Done).First; first != 3 {
		t.Errorf("first is %d", first)
	}
	if err := g.Await(t.Context(), Progress, a); err != nil {
		t.Fatal(err)
	}
	if n := progress[a]; n != 7 {
		t.Errorf("progress is %d", n)
	}
}

func TestFailuresReachTheParent(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]string{
		"fail":    "on purpose",
		"crash":   "exit status 9",
		"no such": "there is no such role",
		"garbled": "a value of the garbled cannot be decoded",
		"chatty":  "the chatty ended: invalid character",
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			c := start(t, g, role)
			err := g.Await(t.Context(), Done, c)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), role) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

func TestStallAndCancel(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	c := start(t, g, "silent")
	g.Patience = time.Millisecond
	if err := g.Await(t.Context(), Done, c); !errors.Is(err, ErrStalled) {
		t.Errorf("got %v", err)
	}
	g.Patience = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Await(ctx, Done, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The others go on when a peer is killed.
func TestKilledPeer(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	killed, other := start(t, g, "deaf"), start(t, g, "echo")
	if err := g.Kill(t.Context(), killed); err != nil {
		t.Fatal(err)
	}
	if killed.worker.Processor() < 0 { // panics for a process that was not awaited
		t.Error("it has not been awaited")
	}
	if err := g.Tell(Go, other); err != nil {
		t.Fatal(err)
	}
	if err := g.Await(t.Context(), Done, other); err != nil {
		t.Error(err)
	}
	if err := g.Kill(t.Context(), other); err != nil {
		t.Error(err)
	}
}

func TestStopEndsEveryPeer(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	children := []*Child{start(t, g, "silent"), start(t, g, "deaf"), start(t, g, "echo")}
	g.Stop()
	for _, c := range children {
		if c.worker.Processor() < 0 { // panics for a process that was not awaited
			t.Errorf("the %s has not been awaited", c.worker.Name)
		}
	}
}

// A peer whose parent is killed sees the end of its standard input, and no more.
func TestPeerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	w, err := worker.Start(t.Context(), "echo", Task{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	var e Event
	if err := w.Next(&e); err != nil {
		t.Fatal(err)
	}
	w.End()
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
}
