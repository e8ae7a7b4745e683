//go:build unix

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/chp"
	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// pair is two servers, the primary and the backup, each of either version.
type pair struct {
	t         *testing.T
	dir       string
	args      [2][]string // of each server, which do not change
	endpoints []string
	servers   [2]*server
	curve     bool // with the keys of the files server.key and client.key
}

func newPair(t *testing.T, data, curve bool) *pair {
	t.Helper()
	host := loopback.OwnPorts(t)
	p := &pair{t: t, dir: t.TempDir(), endpoints: []string{"tcp://" + host + ":5556", "tcp://" + host + ":5566"}, curve: curve}
	for i, role := range []string{"primary", "backup"} {
		p.args[i] = []string{"--" + role, "--host", host, "--heartbeat", "100ms", "--log-level", "info", "--diverged", p.file("diverged"),
			// So long that a busy machine does not look like a server that is gone.
			"--bstar-interval", "2s"}
		if data {
			p.args[i] = append(p.args[i], "--data", p.file(role), "--sync", "always")
		}
		if curve {
			p.args[i] = append(p.args[i], "--curve-key", p.file("server.key"), "--curve-allow", "any")
		}
	}
	if curve {
		old(t).Must(t, "keygen", "--out", p.file("server.key"))
		old(t).Must(t, "keygen", "--out", p.file("client.key"))
	}
	return p
}

func (p *pair) file(name string) string { return filepath.Join(p.dir, name) }

// flags are those of a command that uses the pair. The owner of the server's key is an
// administrator.
func (p *pair) flags(administrator bool) []string {
	all := flags(p.endpoints...)
	key := "client.key"
	if administrator {
		key = "server.key"
	}
	if p.curve {
		all = append(all, "--curve-key", p.file(key), "--curve-server-key", p.file("server.key"))
	}
	return all
}

// security is that of a client.
func (p *pair) security() (s sockets.Security) {
	if !p.curve {
		return s
	}
	read := func(name string) zmtp.KeyPair {
		text, err := os.ReadFile(p.file(name))
		testenv.Must(p.t, err)
		keys, err := zmtp.ParseKeyFile(text)
		testenv.Must(p.t, err)
		return keys
	}
	s.CurveSecretKey, s.CurveServerKey = read("client.key").Secret, read("server.key").Public
	return s
}

// start starts a server of a version. Its flags are the same in both.
func (p *pair) start(i int, program *commandtest.Program) {
	p.t.Helper()
	p.servers[i] = serve(p.t, program, p.args[i]...)
}

// inSync waits until the server is active, and the other one has all that it has.
func (p *pair) inSync(active int) {
	p.t.Helper()
	testenv.Eventually(p.t, "the pair is in sync", func() bool {
		o := today(p.t).Try(p.t, append([]string{"status", "--json"}, p.flags(true)...)...)
		for line := range strings.Lines(o.Out) {
			s := commandtest.Object(p.t, line)
			if s["endpoint"] == p.endpoints[active] && s["state"] == "active" && s["in_sync"] == true {
				return true
			}
		}
		return false
	})
}

// handOver has the active server hand over to the other one.
func (p *pair) handOver(active int, program *commandtest.Program) {
	p.t.Helper()
	p.inSync(active)
	testenv.Eventually(p.t, "the active server hands over", func() bool {
		o := program.Try(p.t, append([]string{"failover"}, p.flags(true)...)...)
		if strings.Contains(o.Stderr, "it hands over again in") { // soon after the last one
			return false
		}
		if !strings.HasPrefix(o.Out, p.endpoints[1-active]+" is active after ") {
			p.t.Fatalf("failover: %s%s", o.Out, o.Stderr)
		}
		return true
	})
	p.inSync(1 - active)
}

// writers set keys, each once, until they are told to stop: a client of this version, which
// has a number of acknowledgements, a command of the earlier version for each key, and
// another one for all.
type writers struct {
	p        *pair
	wait     sync.WaitGroup
	stop     context.CancelFunc
	client   atomic.Int64 // keys of the client, and of load
	commands atomic.Int64
	load     *commandtest.Process
	seqs     []int64 // what SetSync returned for the client's keys
}

func key(name string, n int64) string { return fmt.Sprintf("/%s/%d", name, n) }

func (p *pair) write() *writers {
	p.t.Helper()
	ctx, stop := context.WithCancel(testenv.Context(p.t))
	w := &writers{p: p, stop: stop, load: old(p.t).Start(p.t, append([]string{"load", "--timeout", "2m"}, p.flags(false)...)...)}
	p.t.Cleanup(w.wait.Wait)
	p.t.Cleanup(stop)
	c := open(p.t, chp.ClientOptions{Servers: p.endpoints, Security: p.security()})
	w.begin(ctx, &w.client, func(n int64) error {
		seq, err := c.SetSync(testenv.Context(p.t), key("client", n), []byte("1"))
		if err != nil {
			return err
		}
		w.seqs = append(w.seqs, seq)
		_, err = fmt.Fprintf(w.load.Stdin, `{"key":%q,"value":"1"}`+"\n", key("load", n))
		return err
	})
	w.begin(ctx, &w.commands, func(n int64) error {
		o := old(p.t).Try(p.t, append([]string{"set", key("command", n), "1", "--timeout", "2m"}, p.flags(false)...)...)
		if o.Code != 0 {
			return errors.New(o.Stderr)
		}
		return nil
	})
	return w
}

func (w *writers) begin(ctx context.Context, n *atomic.Int64, set func(n int64) error) {
	w.wait.Go(func() {
		for ; ctx.Err() == nil; n.Add(1) {
			if err := set(n.Load()); err != nil {
				if !w.p.t.Failed() { // then it is the end of the test
					w.p.t.Error(err)
				}
				return
			}
		}
	})
}

// goOn waits until more was acknowledged to each writer.
func (w *writers) goOn() {
	w.p.t.Helper()
	for _, n := range []*atomic.Int64{&w.client, &w.commands} {
		from := n.Load()
		testenv.Eventually(w.p.t, "a writer goes on", func() bool { return n.Load() >= from+3 || w.p.t.Failed() })
	}
}

// check ends the writers and checks that the map has all that they were acknowledged, and
// that nothing was applied twice.
func (w *writers) check() {
	t := w.p.t
	w.stop()
	w.wait.Wait()
	testenv.Must(t, w.load.Stdin.Close())
	if code := w.load.Wait(); code != 0 {
		t.Errorf("load: exit code %d: %s", code, w.load.Stderr.String())
	}
	c := open(t, chp.ClientOptions{Servers: w.p.endpoints, Security: w.p.security()})
	for name, n := range map[string]int64{"client": w.client.Load(), "load": w.client.Load(), "command": w.commands.Load()} {
		t.Logf("%s: %d keys", name, n)
		for n := range n {
			key := key(name, n)
			e, presence := c.Lookup(key)
			if presence != chp.PresenceFound {
				t.Errorf("%s is lost", key)
			}
			if name == "client" && e.Sequence > w.seqs[n] {
				t.Errorf("%s was applied again, as %d: acknowledged as %d", key, e.Sequence, w.seqs[n])
			}
		}
	}
	if _, err := os.Stat(w.p.file("diverged")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a server discarded updates: %v", err)
	}
}

// TestPairUpgrade: a pair of servers of the earlier version is upgraded while clients write:
// the passive one first, then the other one after a handover. No acknowledged update is
// lost.
func TestPairUpgrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		active      int // who is active before
		data, curve bool
		signal      bool // the active server is ended, instead of chp failover
		back        bool // once more to the earlier version, and again
	}{
		{name: "primary is active"},
		{name: "primary is active, data, CURVE", data: true, curve: true},
		{name: "backup is active, data", active: 1, data: true, back: true},
		{name: "backup is active, signal", active: 1, signal: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, c.data, c.curve)
			p.start(0, old(t))
			p.start(1, old(t))
			w := p.write()
			p.inSync(0)
			if c.active == 1 {
				p.handOver(0, old(t))
			}
			w.goOn()

			p.servers[1-c.active].end(t)
			p.start(1-c.active, today(t))
			p.inSync(c.active)
			w.goOn()
			if !c.signal {
				p.handOver(c.active, old(t))
				w.goOn()
			}
			if c.back {
				p.handOver(1-c.active, today(t))
				w.goOn()
				p.handOver(c.active, today(t))
				w.goOn()
			}
			p.servers[c.active].end(t)
			w.goOn()
			p.start(c.active, today(t))
			p.inSync(1 - c.active)
			w.goOn()
			w.check()
		})
	}
}

// TestServerUpgrade: a server alone is upgraded, after it was stopped or killed, while
// clients write.
func TestServerUpgrade(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*server, testing.TB){"stopped": (*server).end, "killed": (*server).kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := loopback.OwnPorts(t)
			p := &pair{t: t, dir: t.TempDir(), endpoints: []string{"tcp://" + host + ":5556"}}
			p.args[0] = []string{"--host", host, "--data", p.file("map"), "--sync", "always"}
			p.start(0, old(t))
			w := p.write()
			w.goOn()
			stop(p.servers[0], t)
			p.start(0, today(t))
			w.goOn()
			stop(p.servers[0], t)
			sound(t, p.file("map"))
			p.start(0, today(t))
			w.goOn()
			w.check()
		})
	}
}
