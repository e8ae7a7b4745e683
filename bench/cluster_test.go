//go:build unix

package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// buildCommand builds chp and returns its path.
func buildCommand(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "chp")
	if out, err := exec.Command("go", "build", "-o", path, "clustermap/cmd/chp").CombinedOutput(); err != nil {
		tb.Fatalf("cannot build chp: %v\n%s", err, out)
	}
	return path
}

// process is a server of a pair, which is killed and started again.
type process struct {
	tb       testing.TB
	args     []string // the command and its arguments
	endpoint string
	cmd      *exec.Cmd
	stderr   *testenv.Buffer
	ended    chan struct{}
}

func (p *process) start() {
	p.tb.Helper()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.stderr, p.ended = &testenv.Buffer{}, make(chan struct{})
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		p.tb.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // it ends because it is killed; if it does not, ready or inSync says so
		close(ended)
	}(p.cmd, p.ended)
}

// kill ends the process without warning, and returns when it has ended.
func (p *process) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	}
}

// cluster is a pair of servers, each a process of its own.
type cluster struct {
	tb      testing.TB
	servers [2]*process // the primary, and the backup
}

// startPair starts a pair on an address of its own, with flags for both servers beside
// those of the pair, and returns when it is in sync. The pair ends with tb.
func startPair(tb testing.TB, command string, flags ...string) *cluster {
	tb.Helper()
	host := loopback.Own()
	c := &cluster{tb: tb}
	for i, role := range []string{"--primary", "--backup"} {
		p := &process{
			tb: tb, args: slices.Concat([]string{command, "serve", role, "--host", host}, flags),
			endpoint: fmt.Sprintf("tcp://%s:%d", host, []int{5556, 5566}[i]),
		}
		c.servers[i] = p
		tb.Cleanup(p.kill)
		p.start()
	}
	c.inSync()
	return c
}

// endpoints returns where clients connect to.
func (c *cluster) endpoints() []string {
	return []string{c.servers[0].endpoint, c.servers[1].endpoint}
}

// status asks both servers how they are. One that does not answer has no state.
func (c *cluster) status() (all [2]chp.Status) {
	var asking sync.WaitGroup
	for i, p := range c.servers {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			all[i], _ = chp.ServerStatus(ctx, p.endpoint, sockets.Security{}) // a server that is starting does not answer
		})
	}
	asking.Wait()
	return all
}

// inSync returns when one server is active and waits for the other one with each
// update, and the other one has the same. It returns which one is active.
func (c *cluster) inSync() (active int) {
	c.tb.Helper()
	testenv.Eventually(c.tb, "the pair is in sync", func() bool {
		all := c.status()
		for active = range all {
			if all[active].State == chp.ServerActive && all[active].InSync && all[1-active].State == chp.ServerPassive && all[active].Keys == all[1-active].Keys {
				return true
			}
		}
		for _, p := range c.servers {
			select {
			case <-p.ended:
				c.tb.Fatalf("%s ended: %s", strings.Join(p.args[1:], " "), p.stderr)
			default:
			}
		}
		return false
	})
	return active
}

// client returns a client of both servers, ACTIVE. It ends with tb.
func (c *cluster) client(o chp.ClientOptions) *chp.Client {
	c.tb.Helper()
	o.Servers = c.endpoints()
	client, err := chp.NewClient(o)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			c.tb.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := client.WaitActive(ctx); err != nil {
		c.tb.Fatal(err)
	}
	return client
}

// processor returns how long the servers, while they run, ran on processors so far.
func (c *cluster) processor() (sum time.Duration) {
	for _, p := range c.servers {
		sum += processorOf(p.cmd.Process.Pid)
	}
	return sum
}
