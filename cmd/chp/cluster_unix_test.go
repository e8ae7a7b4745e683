//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"clustermap/chp"
	"clustermap/internal/interop"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// testCluster is three nodes, each a process.
type testCluster struct {
	t         *testing.T
	nodes     [3]*process
	endpoints [3]string
	dirs      [3]string
	args      []string
}

// startCluster starts a cluster, with more arguments for each node.
func startCluster(t *testing.T, args ...string) *testCluster {
	t.Helper()
	c := &testCluster{t: t}
	var all []string
	for i := range c.endpoints {
		c.endpoints[i], c.dirs[i] = "tcp://"+loopback.Own()+":5556", t.TempDir()
		all = append(all, fmt.Sprintf("%d=%s", i+1, c.endpoints[i]))
	}
	c.args = append([]string{"--cluster", strings.Join(all, ","), "--heartbeat", "100ms"}, args...)
	for i := range c.nodes {
		c.start(i)
	}
	return c
}

func (c *testCluster) start(i int) {
	c.t.Helper()
	c.nodes[i] = start(c.t, append([]string{"serve", "--data", c.dirs[i], "--node", fmt.Sprint(i + 1)}, c.args...)...)
	if at := c.nodes[i].ready(); at != c.endpoints[i] {
		c.t.Fatalf("node %d is at %s, not at %s", i+1, at, c.endpoints[i])
	}
}

// kill kills a node.
func (c *testCluster) kill(i int) {
	c.t.Helper()
	c.nodes[i].signal(os.Kill)
	c.nodes[i].wait()
}

// servers returns the flags for all nodes.
func (c *testCluster) servers() (all []string) {
	for _, e := range c.endpoints {
		all = append(all, "--server", e)
	}
	return all
}

// leader waits until a node leads that both others know, or one of them, and returns its place.
func (c *testCluster) leader() (leader int) {
	c.t.Helper()
	testenv.Eventually(c.t, "no node leads", func() bool {
		known := map[int]int{}
		for _, e := range c.endpoints {
			if st, err := chp.ServerStatus(c.t.Context(), e, sockets.Security{}); err == nil && st.Cluster.Leader > 0 {
				known[int(st.Cluster.Leader)-1]++
			}
		}
		for l, n := range known {
			if leader = l; n >= 2 && len(known) == 1 {
				return true
			}
		}
		return false
	})
	return leader
}

// dump returns the map of a node.
func (c *testCluster) dump(i int) map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(must(c.t, "dump", "--server", c.endpoints[i], "--timeout", "1m")) {
		var e struct{ Key, Value string }
		testenv.Must(c.t, json.Unmarshal([]byte(line), &e))
		all[e.Key] = e.Value
	}
	return all
}

// TestClusterLosesNothing kills the leader, again and again, while clients write to all nodes, some of them as libzmq's
// guide has it: every update that was acknowledged is in the maps of all nodes in the end.
func TestClusterLosesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.leader()
	var mu sync.Mutex
	acknowledged := map[string]string{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	writing, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 3 {
		client, err := chp.NewClient(chp.ClientOptions{Servers: slices.Concat(c.endpoints[w:], c.endpoints[:w])})
		testenv.Must(t, err)
		defer client.Close()
		writers.Go(func() {
			for n := 0; writing.Err() == nil; n++ {
				key, value := fmt.Sprintf("/%d/%d", w, n), fmt.Sprint(n)
				if _, err := client.SetSync(writing, key, []byte(value)); err == nil {
					mu.Lock()
					acknowledged[key] = value
					mu.Unlock()
				}
			}
		})
	}
	more := func() {
		t.Helper()
		want := count() + 300
		testenv.Eventually(t, "nothing is acknowledged any more", func() bool { return count() >= want })
	}
	more()
	for range 3 {
		leader := c.leader()
		c.kill(leader)
		more()
		c.start(leader)
		more()
	}
	stop()
	writers.Wait()
	c.leader()
	for i := range c.nodes {
		have := c.dump(i)
		for key, value := range acknowledged {
			if have[key] != value {
				t.Errorf("node %d has %q at %s, and %q was acknowledged", i+1, have[key], key, value)
			}
		}
		if first := c.dump(0); !maps.Equal(have, first) {
			t.Errorf("node %d has %d keys, node 1 has %d, and they are not the same", i+1, len(have), len(first))
		}
	}
}

// TestClusterWithGuideClient lets a client on libzmq, which works as the guide's of model 6 and knows nothing of ours, write to a
// node that does not lead, and kills the leader: the client notices nothing, and no update is missing, or out of
// order.
func TestClusterWithGuideClient(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	c := startCluster(t)
	leader := c.leader()
	at := func(i int) string { return strings.TrimPrefix(c.endpoints[i], "tcp://") }
	one, other := (leader+1)%3, (leader+2)%3
	p := interop.Python(t, "clone_guide.py", "--server", at(one), "--server", at(other), "--timeout", "5000")
	p.Call(interop.Op{"op": "wait_subscribed"}, nil)
	p.Call(interop.Op{"op": "wait_active", "server": at(one)}, nil)
	const keys = 50
	write := func(on bool) (sent int) {
		var answer struct{ Sent int }
		p.Call(interop.Op{"op": "write", "prefix": []byte("/w/"), "keys": keys, "on": on}, &answer)
		return answer.Sent
	}
	write(true)
	testenv.Eventually(t, "the client's updates do not arrive", func() bool { return len(c.dump(other)) == keys })
	c.kill(leader)
	must(t, append([]string{"set", "/after", "1", "--timeout", "1m"}, c.servers()...)...)
	sent := write(false)
	p.Call(interop.Op{"op": "set", "key": []byte("/end"), "value": []byte("1")}, nil)
	want := map[string]string{"/end": "1", "/after": "1", "/seen": "1"}
	for n := max(sent-keys, 0); n < sent; n++ {
		want[fmt.Sprintf("/w/%d", n%keys)] = fmt.Sprint(n)
	}
	testenv.Eventually(t, "the last update does not arrive", func() bool { return c.dump(one)["/end"] == "1" })
	must(t, append([]string{"set", "/seen", "1", "--timeout", "1m"}, c.servers()...)...)
	p.Call(interop.Op{"op": "wait", "key": []byte("/seen"), "value": []byte("1")}, nil)
	var d interop.Dump
	p.Call(interop.Op{"op": "dump"}, &d)
	for name, have := range map[string]map[string]string{"the client": d.Values(), "the node": c.dump(one), "the other node": c.dump(other)} {
		if !maps.Equal(have, want) {
			t.Errorf("%s has %v, want %v", name, have, want)
		}
	}
	var stats struct{ Syncs, Twice, Malformed int }
	p.Call(interop.Op{"op": "stats"}, &stats)
	if stats.Syncs != 1 || stats.Twice > 0 || stats.Malformed > 0 {
		t.Errorf("%+v; want one snapshot, and nothing twice", stats)
	}
}

// TestClusterGrows makes a server with a log a cluster of one and then of three, removes a node, and hands the
// term over. The map is the same at each.
func TestClusterGrows(t *testing.T) {
	t.Parallel()
	hosts := [3]string{loopback.Own(), loopback.Own(), loopback.Own()}
	var endpoints, dirs [3]string
	for i := range hosts {
		endpoints[i], dirs[i] = "tcp://"+hosts[i]+":5556", t.TempDir()
	}
	alone := start(t, "serve", "--host", hosts[0], "--data", dirs[0], "--sync", "always")
	alone.ready()
	must(t, "set", "/before", "1", "--server", endpoints[0])
	alone.signal(os.Interrupt)
	alone.wait()
	first := func() *process {
		p := start(t, "serve", "--data", dirs[0], "--node", "1", "--cluster", "1="+endpoints[0])
		p.ready()
		return p
	}
	nodes := [3]*process{first()}
	join := func(i int, args ...string) {
		nodes[i] = start(t, append([]string{"serve", "--host", hosts[i], "--data", dirs[i], "--join", endpoints[i-1]}, args...)...)
		nodes[i].ready()
	}
	members := func() (all []chp.NodeMember) {
		st, err := chp.ServerStatus(t.Context(), endpoints[0], sockets.Security{})
		if err != nil || st.Cluster == nil {
			return nil
		}
		return st.Cluster.Members
	}
	voters := func() (n int) {
		for _, m := range members() {
			if !m.Learner {
				n++
			}
		}
		return n
	}
	join(1)
	testenv.Eventually(t, "the second node gets no vote", func() bool { return voters() == 2 })
	join(2, "--learner")
	testenv.Eventually(t, "the third node is not added", func() bool { return len(members()) == 3 })
	if n := voters(); n != 2 {
		t.Errorf("%d nodes have a vote, and one of three is to have none", n)
	}
	must(t, "set", "/after", "2", "--server", endpoints[2], "--timeout", "1m")
	for _, e := range endpoints {
		if got := must(t, "get", "--prefix", "/", "--server", e); !strings.Contains(got, "1") || !strings.Contains(got, "2") {
			t.Errorf("%s has %q", e, got)
		}
	}
	id := func(i int) string {
		for _, m := range members() {
			if m.Endpoint == endpoints[i] {
				return fmt.Sprint(m.Node)
			}
		}
		t.Fatalf("node %d is no member", i)
		return ""
	}
	must(t, "cluster", "promote", id(2), "--server", endpoints[1])
	must(t, "cluster", "transfer", id(1), "--server", endpoints[0])
	nodes[0].signal(os.Kill)
	nodes[0].wait()
	must(t, "set", "/without", "3", "--server", endpoints[1], "--server", endpoints[2], "--timeout", "1m")
	nodes[0] = first()
	testenv.Eventually(t, "the node does not come back", func() bool { return try(t, "get", "/without", "--server", endpoints[0]).code == exitDone })
	must(t, "cluster", "transfer", id(2), "--server", endpoints[0])
	removed := id(2)
	must(t, "cluster", "remove", removed, "--server", endpoints[2]) // which leads, and ends
	try(t, "cluster", "add", removed, endpoints[2], "--server", endpoints[0]).expect(t, exitRefused, "a number is not used again")
	if code, said := nodes[2].wait(), nodes[2].stderr.String(); code != exitRefused || !strings.Contains(said, "was removed from its cluster") {
		t.Errorf("the node that was removed has ended with %d: %s", code, said)
	}
	if out := must(t, "cluster", "status", "--server", endpoints[0]); strings.Contains(out, endpoints[2]) || strings.Count(out, "\n") != 3 {
		t.Errorf("after the removal: %s", out)
	}
	// Who has voted, and comes with an empty directory, may vote again.
	nodes[1].signal(os.Kill)
	nodes[1].wait()
	lost := t.TempDir()
	try(t, "serve", "--host", hosts[1], "--data", lost, "--join", endpoints[0]).expect(t, exitRefused, "remove that node before another one joins there (chp cluster remove "+id(1)+")")
	join(1)
	// Two of two would be needed, and one would be left that answers.
	nodes[1].signal(os.Kill)
	nodes[1].wait()
	try(t, "cluster", "remove", "1", "--server", endpoints[0], "--timeout", "2s").expect(t, exitRefused, "no node leads")
}

// TestBackupOfNode: a backup of a node's directory becomes the directory of a server alone, and of the first node of
// another cluster. What the node has for its cluster only is no damage.
func TestBackupOfNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	must(t, append([]string{"set", "/k", "v", "--timeout", "1m"}, c.servers()...)...)
	for i := range c.nodes {
		testenv.Eventually(t, "the node has no update", func() bool {
			return try(t, "get", "/k", "--server", c.endpoints[i]).code == exitDone
		})
	}
	file := filepath.Join(t.TempDir(), "node.backup")
	must(t, "backup", c.dirs[1], file)
	must(t, "fsck", file)
	must(t, "fsck", c.dirs[1])
	sequence := func(at ...string) (n int64) {
		_, err := fmt.Sscan(must(t, append([]string{"set", "/later", "1", "--timeout", "1m"}, at...)...), &n)
		testenv.Must(t, err)
		return n
	}
	lost := sequence(c.servers()...) // the backup does not have it, and clients have seen it
	c.nodes[1].terminate()
	try(t, "serve", "--data", c.dirs[1], "--port", "0").expect(t, exitRefused, "it is the directory of node 2 of a cluster")

	alone, lone := filepath.Join(t.TempDir(), "alone"), filepath.Join(t.TempDir(), "lone")
	must(t, "restore", file, alone)
	must(t, "restore", file, lone)
	s := start(t, "serve", "--data", alone, "--port", "0")
	at := s.ready()
	if got := must(t, "get", "/k", "--server", at); got != "v\n" {
		t.Errorf("the server has %q", got)
	}
	if n := sequence("--server", at); n <= lost {
		t.Errorf("the server gives the sequence %d, which clients know as that of another update: up to %d", n, lost)
	}
	endpoint := "tcp://" + loopback.Own() + ":5556"
	start(t, "serve", "--data", lone, "--node", "1", "--cluster", "1="+endpoint).ready()
	if got := must(t, "get", "/k", "--timeout", "1m", "--server", endpoint); got != "v\n" {
		t.Errorf("the node has %q", got)
	}
	if n := sequence("--server", endpoint); n <= lost {
		t.Errorf("the node gives the sequence %d, which clients know as that of another update: up to %d", n, lost)
	}
	joined := start(t, "serve", "--host", loopback.Own(), "--data", t.TempDir(), "--join", endpoint).ready()
	if got := must(t, "get", "/k", "--timeout", "1m", "--server", joined); got != "v\n" {
		t.Errorf("the node that joined has %q", got)
	}
}

// TestClusterKeys changes the key of all nodes while they run: one that is started again with the new key alone finds the
// others.
func TestClusterKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	must(t, "keygen", "--out", file("old.key"))
	must(t, "keygen", "--out", file("new.key"))
	text := func(name string) string {
		b, err := os.ReadFile(file(name))
		testenv.Must(t, err)
		return string(b)
	}
	write := func(keys ...string) {
		var all strings.Builder
		for _, k := range keys {
			all.WriteString(text(k))
		}
		testenv.Must(t, os.WriteFile(file("next"), []byte(all.String()), 0o600))
		testenv.Must(t, os.Rename(file("next"), file("server.key")))
	}
	write("old.key")
	c := startCluster(t, "--curve-key", file("server.key"), "--curve-allow", file("new.key"))
	ask := func(key string, args ...string) outcome {
		return try(t, slices.Concat(args, c.servers(), []string{"--curve-key", file(key), "--curve-server-key", file(key)})...)
	}
	ask("old.key", "set", "/k", "1", "--timeout", "1m").expect(t, exitDone, "")
	for _, keys := range [][]string{{"old.key", "new.key"}, {"new.key", "old.key"}, {"new.key"}} {
		write(keys...)
		for i := range c.nodes {
			p := c.nodes[i]
			again := strings.Count(p.stderr.String(), "server.key again:")
			p.signal(syscall.SIGHUP)
			testenv.Eventually(t, "the node does not read its keys", func() bool { return strings.Count(p.stderr.String(), "server.key again:") > again })
		}
	}
	c.kill(0)
	c.start(0)
	c.kill(1) // the first one is needed for a majority now
	ask("new.key", "set", "/k", "2", "--timeout", "1m").expect(t, exitDone, "")
}

// TestClusterMistakes: the text says what is wrong.
func TestClusterMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const nodes = "1=tcp://127.0.0.1:7000,2=tcp://127.0.0.1:7010"
	for _, c := range []struct{ args, want string }{
		{"serve --node 1", "add --cluster or --join"},
		{"serve --cluster " + nodes + " --node 1", "needs --data"},
		{"serve --data " + dir + " --cluster " + nodes, "needs --node"},
		{"serve --data " + dir + " --cluster " + nodes + " --node 3", "is not in --cluster"},
		{"serve --data " + dir + " --cluster 1=here --node 1", "node 1"},
		{"serve --data " + dir + " --cluster 1=tcp://127.0.0.1:65533 --node 1", "the port must be 1 to 65532"},
		{"serve --data " + dir + " --cluster " + nodes + " --node 1 --node-offset 2", "must be 3 or more"},
		{"serve --node-offset 4", "add --cluster or --join"},
		{"serve --data " + dir + " --cluster 1=tcp://h:1,1=tcp://h:9 --node 1", "twice"},
		{"serve --data " + dir + " --cluster " + nodes + " --node 1 --primary", "no server of a pair"},
		{"serve --data " + dir + " --cluster " + nodes + " --node 1 --learner", "--learner is for --join"},
		{"serve --data " + dir + " --cluster " + nodes + " --join tcp://127.0.0.1:7000", "exclude each other"},
		{"serve --data " + dir + " --join tcp://127.0.0.1:7000 --host 0.0.0.0", "needs --advertise"},
		{"serve --data " + dir + " --join tcp://10.0.0.1:7000", "the other nodes cannot reach this one at 127.0.0.1"},
		{"cluster", "name a command"},
		{"cluster frobnicate", "there is no command"},
		{"cluster remove", "usage: chp cluster remove NODE"},
		{"cluster remove x", "is not the number of a node"},
		{"cluster add 4 here", "here"},
		{"cluster dev --port 65535", "--port"},
	} {
		try(t, strings.Fields(c.args)...).expect(t, exitUsage, c.want)
	}
	alone := serve(t)
	try(t, "cluster", "status", "--server", alone.endpoint).expect(t, exitRefused, "is not a node of a cluster")
	try(t, "serve", "--data", filepath.Join(dir, "new"), "--port", "5556", "--host", loopback.Own(), "--join", alone.endpoint).expect(t, exitRefused, "is not a node of a cluster")

	c := startCluster(t)
	must(t, append([]string{"set", "/k", "v", "--timeout", "1m"}, c.servers()...)...)
	c.kill(0)
	try(t, append([]string{"serve", "--data", c.dirs[0], "--node", "2"}, c.args...)...).expect(t, exitRefused, "is the directory of node 1, not of node 2")
	try(t, "serve", "--data", c.dirs[0], "--node", "1", "--cluster", nodes).expect(t, exitRefused, "its cluster knows it at "+c.endpoints[0]+": to move a node, remove it")
	try(t, "serve", "--data", c.dirs[0], "--node", "1", "--cluster", nodes).expect(t, exitRefused, "its cluster knows it at "+c.endpoints[0])
	// Its directory is one as others are.
	if out := must(t, "fsck", c.dirs[0]); !strings.HasPrefix(out, "node 1 of cluster ") || !strings.HasSuffix(out, "sound\n") {
		t.Errorf("fsck: %s", out)
	}
	member := filepath.Join(c.dirs[0], "member")
	b, err := os.ReadFile(member)
	testenv.Must(t, err)
	testenv.Must(t, os.WriteFile(member, make([]byte, len(b)), 0o600))
	if got := try(t, "fsck", c.dirs[0]); got.code != exitRefused || !strings.Contains(got.out, "no valid slot") {
		t.Errorf("fsck of a damaged member file: %+v", got)
	}
}

// TestLostDirectory: a node whose directory is empty does not start under a number that has run before, and joins
// under another one when that is removed.
func TestLostDirectory(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	must(t, append([]string{"set", "/k", "v", "--timeout", "1m"}, c.servers()...)...)
	testenv.Eventually(t, "node 2 does not hear of node 1", func() bool {
		st, err := chp.ServerStatus(t.Context(), c.endpoints[1], sockets.Security{})
		return err == nil && slices.ContainsFunc(st.Cluster.Members, func(m chp.NodeMember) bool { return m.Node == 1 && m.Heard })
	})
	c.kill(0)
	again := append([]string{"serve", "--data", t.TempDir(), "--node", "1"}, c.args...)
	try(t, again...).expect(t, exitRefused, "chp cluster remove 1 --server")
	lost := strings.TrimPrefix(c.endpoints[0], "tcp://")
	host, port, err := net.SplitHostPort(lost)
	testenv.Must(t, err)
	join := []string{"serve", "--data", t.TempDir(), "--host", host, "--port", port, "--join", c.endpoints[1]}
	try(t, join...).expect(t, exitRefused, "chp cluster remove 1")
	must(t, "cluster", "remove", "1", "--server", c.endpoints[1], "--timeout", "1m")
	p := start(t, join...)
	p.ready()
	if got := must(t, "get", "/k", "--server", c.endpoints[0], "--timeout", "1m"); !strings.Contains(got, "v") {
		t.Errorf("the node in its place has %q", got)
	}
}

// TestClusterDev runs three nodes with one command, which starts one again that is killed, and ends all.
func TestClusterDev(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	p := start(t, "cluster", "dev", "--host", host, "--data", t.TempDir())
	endpoint := func(i int) string { return fmt.Sprintf("tcp://%s:%d", host, chp.DefaultPort+i*devStep) }
	var servers []string
	for i := range devNodes {
		servers = append(servers, "--server", endpoint(i))
	}
	must(t, append([]string{"set", "/k", "v", "--timeout", "1m"}, servers...)...)
	var pid int
	for line := p.line(); pid == 0; line = p.line() {
		if _, err := fmt.Sscanf(line, "node 2: process %d", &pid); err == nil {
			break
		}
	}
	node, err := os.FindProcess(pid)
	testenv.Must(t, err)
	testenv.Must(t, node.Kill())
	testenv.Eventually(t, "the node is not started again", func() bool {
		return try(t, "get", "/k", "--timeout", "5s", "--server", endpoint(1)).code == exitDone
	})
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}

// TestPairBecomesCluster makes a pair a cluster of three, as docs/CLUSTER.md has it. What the pair had, each node has.
func TestPairBecomesCluster(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	dirs := [2]string{t.TempDir(), t.TempDir()}
	var pair [2]*server
	for i, role := range []string{"--primary", "--backup"} {
		p := start(t, "serve", role, "--host", host, "--data", dirs[i], "--bstar-interval", "1s")
		pair[i] = &server{process: p, endpoint: p.ready()}
	}
	must(t, "set", "/of/pair", "1", "--timeout", "1m", "--server", pair[0].endpoint, "--server", pair[1].endpoint)
	pair[0].awaitSync(pair[1])
	for _, s := range []*server{pair[1], pair[0]} { // the passive one first
		s.terminate()
	}

	endpoints := []string{pair[0].endpoint}
	start(t, "serve", "--data", dirs[0], "--node", "1", "--cluster", "1="+endpoints[0]).ready()
	for range 2 {
		p := start(t, "serve", "--host", loopback.Own(), "--data", t.TempDir(), "--join", endpoints[0])
		endpoints = append(endpoints, p.ready())
	}
	testenv.Eventually(t, "not all three have a vote", func() bool {
		st, err := chp.ServerStatus(t.Context(), endpoints[0], sockets.Security{})
		return err == nil && st.Cluster != nil && len(st.Cluster.Members) == 3 && !slices.ContainsFunc(st.Cluster.Members, func(m chp.NodeMember) bool { return m.Learner })
	})
	must(t, "set", "/of/cluster", "2", "--timeout", "1m", "--server", endpoints[2])
	for _, e := range endpoints {
		if got := must(t, "get", "--prefix", "/of/", "--server", e); !strings.Contains(got, "1") || !strings.Contains(got, "2") {
			t.Errorf("%s has %q", e, got)
		}
	}
}
