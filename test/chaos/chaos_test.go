//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
	"clustermap/sockets"

	"go.uber.org/goleak"
)

var (
	faultCount   = flag.Int("faults", 0, "number of faults; 0: 60, 30 with -short, 20 under the race detector")
	seedFlag     = flag.Uint64("seed", 0, "seed of the faults and of what is written; 0: another one each time")
	replicaCount = flag.Int("replicas", 0, "number of replicas; 0: 20, 12 with -short, 8 under the race detector")
	writerCount  = flag.Int("writers", 5, "how many of the replicas write, with two goroutines each")
	only         = flag.String("only", "", "comma-separated `kinds` of the faults, such as stop,reset; by default all")
	longest      = flag.Duration("longest", 1200*time.Millisecond, "how long a fault lasts at most")
	pace         = flag.Duration("pace", 60*time.Millisecond, "mean time from one fault to the next")
	think        = flag.Duration("think", 8*time.Millisecond, "mean time between the operations of a goroutine")
	convergence  = flag.Duration("convergence", time.Minute, "how long the replicas may take to become equal to the server once nothing disturbs them")
	historyDir   = flag.String("history", "", "`directory` for histories and logs; by default they are kept in a temporary one when a check fails")
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(c int) {
		if built.dir != "" {
			os.RemoveAll(built.dir)
		}
		os.Exit(c)
	}), goleak.IgnoreAnyFunction("clustermap/internal/testenv.launcher"))
}

// TestChaos injects faults into clusters of each shape and checks that all that is
// promised holds.
func TestChaos(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := run(t, s, func(c *cluster, seed uint64) []fault {
				n := orDefault(*faultCount, 60, 30)
				if c.shape.raft {
					n = orDefault(*faultCount, 100, 30)
				}
				return c.plan(n, seed, *longest)
			})
			c.report()
		})
	}
}

// TestLostMap: a server that loses its map while it is taken for one that keeps it
// is noticed, however well the clients follow it.
func TestLostMap(t *testing.T) {
	t.Parallel()
	c := run(t, shape{name: "lost-map", keeps: true}, func(*cluster, uint64) []fault {
		return []fault{{after: 500 * time.Millisecond, kind: faultKill}, {after: 500 * time.Millisecond, kind: faultKill}}
	})
	if !slices.ContainsFunc(c.history.broken, func(v violation) bool { return v.Check == "linearizable" }) {
		t.Errorf("not noticed: %v", c.history.broken)
	}
	for _, v := range c.history.broken {
		if v.Check != "linearizable" {
			t.Errorf("%s: %s", v.Check, v.Text)
		}
	}
}

// cluster is servers, replicas and the proxies between them.
type cluster struct {
	t        testing.TB
	shape    shape
	history  *history
	dir      string
	servers  []*server
	replicas []*replica
	observer *replica // not disturbed
	program  *program // at the observer
	writers  []*writer
	holders  []*holder
	lives    []*life // all that there were; nil before the end
	faults   []fault
	phases   []string // and how long they took
	seed     uint64
	keys     []string
	counting []int    // replicas of the whole map: they notice when an update is missing
	between  []*proxy // links of the servers
	nodes    int      // how many have joined
	troubles []trouble
	settles  []time.Duration // before each trouble: from then on both servers had everything
	flooder  *writer         // writes through the observer
	flooding sync.Mutex
}

const (
	subtreeCount = 8
	keysEach     = 6
)

func subtree(i int) string { return fmt.Sprintf("/%c/", 'a'+i%subtreeCount) }

// subtreeOf returns the subtree of a key.
func subtreeOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

func orDefault(n, normal, short int) int {
	switch {
	case n != 0:
		return n
	case testenv.RaceDetector:
		return short * 2 / 3
	case testing.Short():
		return short
	}
	return normal
}

// forgets says that the servers remember no updates: clients that come back need a snapshot.
func forgets(seed uint64) bool { return seed%2 == 0 }

// run runs one cluster through its faults, and checks its history.
func run(t *testing.T, s shape, plan func(c *cluster, seed uint64) []fault) *cluster {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()%1_000_000 + 1
	}
	dir := *historyDir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "chp-chaos-history-"); err != nil {
			t.Fatal(err)
		}
	} else {
		dir = filepath.Join(dir, fmt.Sprintf("%s-%d", s.name, seed))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // after all others: they were registered later
		if !t.Failed() && *historyDir == "" {
			os.RemoveAll(dir)
		}
	})
	c := &cluster{t: t, shape: s, history: &history{begin: time.Now()}, dir: dir, seed: seed}
	began := time.Now()
	phase := func(name string) {
		c.phases = append(c.phases, fmt.Sprintf("%s %.1f s", name, time.Since(began).Seconds()))
		began = time.Now()
	}
	c.start(orDefault(*replicaCount, 20, 12), seed)
	phase("start")

	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	c.faults = plan(c, seed)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var writers sync.WaitGroup
	for _, w := range c.writers {
		writers.Go(func() { w.run(writing) })
	}
	for _, w := range c.holders {
		writers.Go(func() { w.run(writing) })
	}
	c.inject(ctx, c.faults)
	sleep(ctx, 200*time.Millisecond) // some updates after the last fault
	back := &c.program.resumed
	if forgets(seed) {
		back = &c.program.anew
	}
	for (c.acknowledged() < enough || c.judged() < enough || back.Load() < 3) && sleep(ctx, 10*time.Millisecond) {
	}
	stop()
	writers.Wait()
	phase("faults")
	c.deleteUnseen(ctx)
	phase("deletions")
	c.converge(ctx)
	phase("convergence")
	// The watches' later events are not checked.
	for _, p := range c.history.programs {
		p.end()
	}
	for _, r := range append(slices.Clone(c.replicas), c.observer) {
		r.end()
		c.lives = append(c.lives, r.lives...)
	}
	for _, server := range c.servers {
		server.mu.Lock()
		for _, crash := range server.crashed {
			c.history.violate("crash", "%s", crash)
		}
		server.mu.Unlock()
	}
	phase("end")
	splits := s.splits
	if s.pair && !splits {
		if why := suspected(c.turns(), c.settles, c.troubles); why != "" {
			splits = true
			t.Logf("checked as pair-split: %s; is the machine busy?", why)
		}
	}
	c.history.check(c.lives, c.allKeys(), 2*time.Minute, splits)
	phase("checks")
	return c
}

// enough is how many updates must be acknowledged at least: without them a run
// shows nothing. On a slow machine the writers go on until there are as many.
const enough = 100

func (c *cluster) acknowledged() (n int64) {
	for _, w := range c.writers {
		n += w.done.Load()
	}
	return n
}

// judged counts the updates under conditions that were made.
func (c *cluster) judged() (n int64) {
	for _, w := range c.holders {
		n += w.done.Load()
	}
	return n
}

// start starts the servers and the replicas, and waits until all follow.
func (c *cluster) start(replicas int, seed uint64) {
	t := c.t
	command(c.t) // is built first, for that may take a minute
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if forgets(seed) {
		c.startServers(ctx, "--retain", "0")
	} else {
		c.startServers(ctx)
	}
	var direct []string
	for _, s := range c.servers {
		direct = append(direct, s.address())
	}
	for i := range subtreeCount {
		for k := range keysEach {
			c.keys = append(c.keys, fmt.Sprintf("%sk%d", subtree(i), k))
		}
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	for i := range replicas {
		var subtrees []string
		switch {
		case i == 0 || i%5 == 4:
			c.counting = append(c.counting, i)
		case i < *writerCount || i%5 == 1:
			subtrees = []string{subtree(2*i - 2), subtree(2*i - 1), subtree(2 * i)}
		case i%5 == 2:
			subtrees = []string{subtree(rng.IntN(subtreeCount))}
		case i%5 == 3:
			subtrees = []string{c.keys[rng.IntN(len(c.keys))], subtree(rng.IntN(subtreeCount))}
		default:
			subtrees = []string{subtree(i), subtree(i + 3)}
		}
		if subtrees != nil && (i < *writerCount || i%5 != 3) {
			subtrees = append(subtrees, condSubtree)
		} else if subtrees != nil {
			subtrees = append(subtrees, accountKey(0)) // a part of most transactions
		}
		name := fmt.Sprintf("replica%d", i)
		var routes []*route
		var servers []string
		for _, s := range c.servers {
			r := newRoute(t, name+"-"+s.name, subtrees == nil)
			r.lead(s.host, s.port)
			routes = append(routes, r)
			servers = append(servers, r.address)
		}
		r := newReplica(t, c.history, name, subtrees, servers, routes, c.dir)
		c.replicas = append(c.replicas, r)
		if i >= *writerCount {
			continue
		}
		var keys []string
		for _, k := range c.keys {
			if holds(subtrees, k) {
				keys = append(keys, k)
			}
		}
		for n := range 2 {
			proc := 2*i + n
			own := rand.New(rand.NewPCG(seed, uint64(100+proc)))
			mine := slices.Clone(keys)
			own.Shuffle(len(mine), func(i, k int) { mine[i], mine[k] = mine[k], mine[i] })
			c.writers = append(c.writers, &writer{replica: r, proc: proc, first: n == 0, keys: mine, rng: own, pause: *think})
		}
	}
	for i, r := range c.replicas[:min(*writerCount, len(c.replicas))] {
		c.holders = append(c.holders, newHolder(r, 2*replicas+2+i, seed))
	}
	c.observer = newReplica(t, c.history, "observer", nil, direct, nil, c.dir)
	c.flooder = &writer{replica: c.observer, proc: 2 * replicas, keys: c.keys, rng: rand.New(rand.NewPCG(seed, 3))}
	for _, r := range append(slices.Clone(c.replicas), c.observer) {
		if err := r.now().client.WaitActive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.program = newProgram(c.observer, nil, seed)
	c.history.programs = append(c.history.programs, c.program, newProgram(c.replicas[0], nil, seed+1))
	if some := c.replicas[1%len(c.replicas)]; some.subtrees != nil {
		c.history.programs = append(c.history.programs, newProgram(some, some.subtrees[1:], seed+2))
	}
	for _, p := range c.history.programs {
		t.Cleanup(p.end)
	}
}

// startServers starts the servers of the shape, with some more arguments.
func (c *cluster) startServers(ctx context.Context, args ...string) {
	switch {
	case c.shape.raft:
		c.startNodes(true)
	case !c.shape.pair:
		c.servers = []*server{newServer(c.t, "server", c.dir, c.shape.data)}
	default:
		primary, backup := newServer(c.t, "primary", c.dir, c.shape.data), newServer(c.t, "backup", c.dir, c.shape.data)
		c.servers = []*server{primary, backup}
		c.join(primary, backup, "--primary")
		c.join(backup, primary, "--backup")
	}
	for _, s := range c.servers {
		s.args = append(s.args, args...)
		if err := s.start(ctx); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range c.servers { // they do not start at the same moment
		c.troubles = append(c.troubles, trouble{i, 0, c.history.now()})
	}
}

// The links between the servers of a pair, in cluster.between.
const (
	_           = iota // by which the primary follows
	linkStates         // by which the primary hears the backup
	linkUpdates        // by which the backup follows
	_                  // by which the backup hears the primary
)

// join makes a server one of a pair. It reaches the other one through proxies.
func (c *cluster) join(s, peer *server, role string) {
	requests, states := newRoute(c.t, s.name+"-requests", false), newRoute(c.t, s.name+"-states", false)
	requests.lead(peer.host, peer.port)
	states.lead(peer.host, peer.state)
	c.between = append(c.between, requests.ports[0], states.ports[0])
	s.args = append(s.args, role, "--peer", requests.address,
		"--state", fmt.Sprintf("tcp://%s:%d", s.host, s.state), "--peer-state", states.address,
		"--bstar-interval", interval.String(), "--diverged", filepath.Join(c.dir, s.name+".diverged"))
}

// settled waits until a server may get into trouble: before that, updates that the other
// one lacks could be lost. It returns false if the servers do not settle in time.
func (c *cluster) settled(ctx context.Context) bool {
	if !c.shape.pair {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, *convergence)
	defer cancel()
	var last []string
	for {
		last = last[:0]
		asked := c.history.now()
		active, passive := 0, 0 // one that was stopped can take itself for active and in sync
		for _, s := range c.servers {
			status, err := chp.ServerStatus(ctx, s.address(), sockets.Security{})
			switch {
			case err != nil:
			case status.State == chp.ServerActive && status.InSync:
				active++
			case status.State == chp.ServerPassive:
				passive++
			}
			last = append(last, fmt.Sprintf("%s %+v %v", s.name, status, err))
		}
		if active == 1 && passive == 1 {
			c.settles = append(c.settles, asked)
			return true
		}
		if !sleep(ctx, 10*time.Millisecond) {
			c.history.violate("pair", "the servers do not come together: %s", strings.Join(last, "; "))
			return false
		}
	}
}

// allKeys returns the keys, and those that reads write.
func (c *cluster) allKeys() []string {
	seen := map[string]bool{}
	for _, o := range c.history.ops {
		if o.Key != "" {
			seen[o.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// deleteUnseen deletes keys while half of the replicas are away. Those must have
// forgotten them when they come back.
func (c *cluster) deleteUnseen(ctx context.Context) {
	var away []*route
	for i, r := range c.replicas {
		if i%2 == 1 {
			away = append(away, r.routes...)
		}
	}
	for _, r := range away {
		r.each(func(p *proxy) {
			p.refuse(1)
			p.each((*pipe).reset)
		})
	}
	w, l := c.flooder, c.observer.now()
	patient, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for i, key := range c.keys {
		switch i % 3 {
		case 0:
			w.del(patient, l, key)
		case 1:
			w.set(patient, l, key, 0)
		}
	}
	for _, r := range away {
		r.each(func(p *proxy) { p.refuse(-1) })
	}
}

// report tells how it went.
func (c *cluster) report() {
	t, h := c.t, c.history
	outcomes := map[outcome]int{}
	kinds := map[string]int{}
	for _, o := range h.ops {
		outcomes[o.Outcome]++
	}
	for _, f := range c.faults {
		kinds[f.kind]++
	}
	events, syncs, omitted := 0, 0, 0
	resumed, anew := int32(0), int32(0) // watches
	for _, p := range h.programs {
		resumed, anew = resumed+p.resumed.Load(), anew+p.anew.Load()
	}
	for _, l := range c.lives {
		events += len(l.events)
		syncs += len(l.installs)
	}
	for _, r := range c.replicas {
		for _, route := range r.routes {
			omitted += route.ports[portPublisher].dropped
		}
	}
	t.Logf("seed %d: %d faults %v; %s; %d operations %v; %d events of %d clients, %d snapshots, %d updates left out, %d watches resumed, %d anew",
		c.seed, len(c.faults), kinds, strings.Join(c.phases, ", "), len(h.ops), outcomes, events, len(c.lives), syncs, omitted, resumed, anew)
	if n := c.acknowledged(); n < enough {
		h.violate("idle", "%d operations were acknowledged: that shows nothing", n)
	}
	if len(h.broken) > 0 || *historyDir != "" {
		if err := c.write(); err != nil {
			t.Error(err)
		}
	}
	if len(h.broken) == 0 {
		return
	}
	for _, v := range h.broken {
		t.Errorf("VIOLATED %s: %s", v.Check, v.Text)
	}
	t.Logf("go test ./test/chaos -run %s -seed %d -faults %d; histories and logs are in %s; the faults:\n%s",
		t.Name(), c.seed, len(c.faults), c.dir, strings.Join(h.faults, "\n"))
}

// write writes the history to files.
func (c *cluster) write() error {
	h := c.history
	file, err := os.Create(filepath.Join(c.dir, "history.jsonl"))
	if err != nil {
		return err
	}
	defer file.Close()
	e := json.NewEncoder(file)
	for _, o := range h.ops {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	type line struct {
		Client string        `json:"client"`
		At     time.Duration `json:"at"`
		Seq    int64         `json:"seq"`
		Key    string        `json:"key"`
		Value  uint64        `json:"value"`
		Cause  string        `json:"cause"`
		Live   bool          `json:"live"`
	}
	events, err := os.Create(filepath.Join(c.dir, "events.jsonl"))
	if err != nil {
		return err
	}
	defer events.Close()
	e = json.NewEncoder(events)
	for _, l := range c.lives {
		for _, x := range l.events {
			if err := e.Encode(line{l.name, x.at, x.seq, x.key, x.value, x.cause.String(), x.live}); err != nil {
				return err
			}
		}
	}
	rest := append([]string{"faults:"}, h.faults...)
	rest = append(rest, "broken:")
	for _, v := range h.broken {
		rest = append(rest, v.Check+": "+v.Text)
	}
	for _, l := range c.lives {
		rest = append(rest, fmt.Sprintf("%s had new snapshots at %v", l.name, l.installs))
	}
	return os.WriteFile(filepath.Join(c.dir, "faults.txt"), []byte(strings.Join(rest, "\n")+"\n"), 0o600)
}
