//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermap/internal/loopback"
)

// Faults of a cluster's nodes. They meet any set of the three, also all.
const (
	faultMany    = "many"    // SIGKILL to several at once, then new starts
	faultFreeze  = "freeze"  // SIGSTOP to several at once, then SIGCONT
	faultApart   = "apart"   // some nodes do not hear some others
	faultDamage  = "damage"  // SIGKILL, then damage to a file, and a new start
	faultReplace = "replace" // SIGTERM, removal from the cluster, then a new node in its place
)

var nodeFaults = []string{faultMany, faultMany, faultFreeze, faultFreeze, faultApart, faultApart, faultApart, faultDamage, faultReplace}

// portNodes is the port by which nodes talk to each other.
const portNodes = ports

// A front is four proxies in front of the ports of a node, by which the other nodes reach it.
type front struct {
	host string
	node *proxy // of the port for nodes
}

// newFront makes the proxies. They have the node's ports, at an address of their own; where the system has
// only one address there are none.
func (c *cluster) newFront(s *server) *front {
	f := &front{host: loopback.Own()}
	if f.host == s.host {
		return nil
	}
	for i := range portNodes + 1 {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", f.host, s.port+i))
		if err != nil {
			c.t.Fatal(err)
		}
		f.node = newProxy(c.t, l, false)
		f.node.lead(fmt.Sprintf("%s:%d", s.host, s.port+i))
	}
	f.node.senders = true
	return f
}

// member is the address of a node for the others.
func (s *server) member() string {
	if s.front == nil {
		return s.address()
	}
	return fmt.Sprintf("tcp://%s:%d", s.front.host, s.port)
}

// startNodes prepares the nodes of a cluster, which reach each other through fronts or directly.
func (c *cluster) startNodes(fronts bool) {
	var nodes []string
	for i := range 3 {
		s := newServer(c.t, fmt.Sprintf("node%d", i+1), c.dir, true)
		s.node = i + 1
		if fronts {
			s.front = c.newFront(s)
		}
		c.servers = append(c.servers, s)
		nodes = append(nodes, fmt.Sprintf("%d=%s", i+1, s.member()))
	}
	for _, s := range c.servers {
		s.base = slices.Clone(s.args)
		s.args = append(s.args, "--node", fmt.Sprint(s.node), "--cluster", strings.Join(nodes, ","))
	}
}

// doNodes carries out a fault of several nodes.
func (c *cluster) doNodes(ctx context.Context, f fault) {
	var some []*server
	for i, s := range c.servers {
		if (f.replica%7+1)>>i&1 != 0 {
			some = append(some, s)
		}
	}
	s := c.servers[f.server]
	switch f.kind {
	case faultMany:
		for _, s := range some {
			s.kill()
		}
		sleep(ctx, f.then/4)
		c.startAll(ctx, some)
	case faultFreeze:
		for _, s := range some {
			s.signal(syscall.SIGSTOP)
		}
		sleep(ctx, f.lasts)
		for _, s := range some {
			s.signal(syscall.SIGCONT)
		}
	case faultApart:
		c.apart(ctx, f)
	case faultDamage:
		s.kill()
		c.damage(ctx, s, rand.New(rand.NewPCG(c.seed, uint64(f.then))))
	case faultReplace:
		c.replace(ctx, s)
	}
}

func (c *cluster) startAll(ctx context.Context, some []*server) {
	var all sync.WaitGroup
	for _, s := range some {
		all.Go(func() {
			if err := s.start(ctx); err != nil && ctx.Err() == nil {
				c.history.violate("start", "%v", err)
			}
		})
	}
	all.Wait()
}

// apart cuts connections between nodes, in one direction or both, for a while.
func (c *cluster) apart(ctx context.Context, f fault) {
	if c.servers[0].front == nil {
		return
	}
	one, other := f.server, (f.server+1+f.n%2)%len(c.servers)
	cut := func(on bool) {
		for from, a := range c.servers {
			for to, b := range c.servers {
				hit := false
				switch f.replica % 6 {
				case 0, 1: // one is alone
					hit = from == one || to == one
				case 2: // one is not heard
					hit = from == one
				case 3: // one hears nobody
					hit = to == one
				case 4: // one does not hear another one
					hit = from == other && to == one
				case 5: // all talk to one only
					hit = from != one && to != one
				}
				if hit && from != to {
					b.front.node.cutOff(uint64(a.node), on)
				}
			}
		}
	}
	lasts := f.lasts + 300*time.Millisecond // an election time-out: some of them elect
	turns := 1
	if f.n == 4 { // it flaps
		turns = 6
	}
	for range turns {
		cut(true)
		sleep(ctx, lasts/time.Duration(turns))
		cut(false)
		if turns > 1 {
			sleep(ctx, lasts/time.Duration(turns))
		}
	}
}

// damage changes a file of a node that was killed, and starts it. It must have what it had, or not start and say
// what is damaged; then it gets its files back.
func (c *cluster) damage(ctx context.Context, s *server, rng *rand.Rand) {
	whole := s.dir + ".whole"
	err := os.CopyFS(whole, os.DirFS(s.dir))
	what := ""
	if err == nil {
		what, err = damageFile(s.dir, rng)
	}
	if err != nil {
		c.t.Errorf("damage: %v", err)
	}
	c.history.fault("%s: %s", s.name, what)
	s.allow(true, false)
	err = s.start(ctx)
	s.allow(false, false)
	if err != nil && ctx.Err() == nil {
		if text := err.Error(); !strings.Contains(text, "corrupt") && !strings.Contains(text, "newer version") {
			c.history.violate("damage", "%s: %s; what it says does not tell that: %s", s.name, what, text)
		}
		err = os.RemoveAll(s.dir)
		if err == nil {
			err = os.Rename(whole, s.dir)
		}
		if err != nil {
			c.t.Errorf("damage: %v", err)
		}
		c.startAll(ctx, []*server{s})
		return
	}
	if err := os.RemoveAll(whole); err != nil {
		c.t.Error(err)
	}
}

// damageFile damages one of the files of a directory.
func damageFile(dir string, rng *rand.Rand) (what string, err error) {
	var all []string
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "lock" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	path := all[rng.IntN(len(all))]
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	used := len(bytes.TrimRight(b, "\x00"))
	if used == 0 {
		return "nothing", nil
	}
	at := rng.IntN(used)
	if rng.IntN(4) == 0 {
		return fmt.Sprintf("%s is cut off at %d of %d", filepath.Base(path), at, used), os.Truncate(path, int64(at))
	}
	b[at] ^= 1 << rng.IntN(8)
	return fmt.Sprintf("%s has another bit at %d of %d", filepath.Base(path), at, used), os.WriteFile(path, b, 0o600)
}

// replace removes a node from the cluster, and lets a new one join in its place. The node does not run meanwhile or, if
// no majority is left without it, does.
func (c *cluster) replace(ctx context.Context, s *server) {
	other := c.servers[(slices.Index(c.servers, s)+1)%len(c.servers)]
	s.end(syscall.SIGTERM)
	if out, err := c.removed(ctx, s, other, 10*time.Second); err != nil {
		c.history.fault("%s is not removed without it: %v: %s", s.name, err, out)
		s.allow(false, true)
		if err := s.start(ctx); err != nil {
			c.history.fault("%s: %v", s.name, err)
		}
		out, err := c.removed(ctx, s, other, time.Minute)
		s.end(syscall.SIGKILL)
		s.allow(false, false)
		if err != nil {
			if ctx.Err() == nil {
				c.history.violate("change", "%s is not removed: %v: %s", s.name, err, out)
			}
			c.startAll(ctx, []*server{s})
			return
		}
	}
	if err := s.forget(); err != nil {
		c.t.Error(err)
		return
	}
	c.nodes++
	s.node = 10 + c.nodes
	node := []string{"--node", fmt.Sprint(s.node)}
	s.args = slices.Concat(s.base, node, []string{"--join", other.member(), "--advertise", s.member()})
	c.startAll(ctx, []*server{s})
}

// removed removes a node, as soon as another one leads. That it is no member any more is the answer if an earlier
// try had none.
func (c *cluster) removed(ctx context.Context, s, other *server, within time.Duration) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		out, err = exec.CommandContext(ctx, command(c.t), "cluster", "remove", fmt.Sprint(s.node), "--server", other.member()).CombinedOutput()
		if bytes.Contains(out, []byte("is no member")) {
			err = nil
		}
		if err == nil || !sleep(ctx, 100*time.Millisecond) {
			return out, err
		}
	}
}

// cutOff lets nothing of a node through, or does so again.
func (p *proxy) cutOff(node uint64, on bool) {
	p.change(func() {
		if p.cut == nil {
			p.cut = map[uint64]bool{}
		}
		p.cut[node] = on
	})
}

// sender finds out which node a connection comes from: messages of nodes begin with a frame of
//
//	version 1 | kind 1 | flags 1 | cluster 16 | from 8 | ...
type sender struct {
	greeting int // bytes of it that have passed
	pending  []byte
	node     uint64
}

// see returns the node, or 0 as long as it is not known.
func (s *sender) see(b []byte) uint64 {
	n := min(greetingSize-s.greeting, len(b))
	s.greeting += n
	s.pending = append(s.pending, b[n:]...)
	for {
		head := 2
		if len(s.pending) < head {
			return 0
		}
		flags, size := s.pending[0], uint64(s.pending[1])
		if flags&flagLong != 0 {
			if head = 9; len(s.pending) < head {
				return 0
			}
			size = binary.BigEndian.Uint64(s.pending[1:])
		}
		rest := s.pending[head:]
		switch {
		case flags&flagCommand == 0 && len(rest) >= 27:
			s.node, s.pending = binary.BigEndian.Uint64(rest[19:]), nil
			return s.node
		case flags&flagCommand == 0 || uint64(len(rest)) < size:
			return 0
		}
		s.pending = rest[size:]
	}
}
