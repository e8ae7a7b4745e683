package link

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// peerVariable makes the test binary a peer.
const peerVariable = "LINK_TEST_PEER"

func TestMain(m *testing.M) {
	if os.Getenv(peerVariable) == "" {
		os.Exit(m.Run())
	}
	err := Serve(os.Stdin, os.Stdout, map[string]Role{
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
		"deaf":   func(*Peer) error { select {} },
	})
	if err != nil {
		os.Exit(1)
	}
}

func newGroup(t *testing.T) *Group {
	g := &Group{
		Patience: time.Minute,
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), peerVariable+"=1")
			cmd.Stderr = os.Stderr
			return cmd
		},
	}
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
		"no such": "exit status 1",
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

func TestStopEndsEveryPeer(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	children := []*Child{start(t, g, "silent"), start(t, g, "deaf"), start(t, g, "echo")}
	g.Stop()
	for _, c := range children {
		if c.cmd.ProcessState == nil {
			t.Errorf("the %s has not been awaited", c.Name)
		}
	}
}

// A peer whose parent is killed sees the end of its standard input, and no more.
func TestPeerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	cmd := newGroup(t).Command()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(in).Encode(Task{Role: "echo"}); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	in.Close()
	io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
