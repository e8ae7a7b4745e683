package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/testenv"
)

// lister is an owner that lists values.
type lister struct {
	mu sync.Mutex
	simOwner
	own    int
	lost   int
	status Status
}

func (o *lister) Committed(all []Committed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range all {
		o.add(&e.Entry)
		if e.Own {
			o.own++
		}
	}
}

func (o *lister) Lost(all []Position, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost += len(all)
}

func (o *lister) Changed(s Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = s
}

func (o *lister) Restore(s *Snapshot) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.load(s)
}

func (o *lister) Image() (Image, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.simOwner.Image()
}

func (o *lister) has() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.values)
}

// testNode is a node with its owner, which can be started again.
type testNode struct {
	*Node
	owner    *lister
	id       uint64
	dir      string
	peers    map[uint64]string
	join     bool
	tail     int
	proposed int
	interval bool // flush at intervals
}

func (n *testNode) start(t testing.TB) {
	t.Helper()
	transport, err := NewSocketTransport(t.Context(), SocketOptions{Node: n.id, Cluster: ID{7}, Listen: n.peers[n.id]})
	if err != nil {
		t.Fatal(err)
	}
	n.owner = &lister{}
	policy := commit.Always()
	if n.interval {
		policy = commit.Interval(time.Millisecond)
	}
	n.Node, err = Open(Options{
		Dir: n.dir, Node: n.id, Cluster: ID{7}, Peers: n.peers, Join: n.join, Policy: policy, TailBytes: n.tail,
		Owner: n.owner, Transport: transport, ElectionTimeout: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
}

// newCluster starts a cluster.
func newCluster(t testing.TB, count, more int) (all []*testNode) {
	peers := map[uint64]string{}
	address := map[uint64]string{}
	for i := range count + more {
		address[uint64(i+1)] = fmt.Sprintf("tcp://127.0.0.1:%d", testenv.FreePort(t))
		if i < count {
			peers[uint64(i+1)] = address[uint64(i+1)]
		}
	}
	for i := range count + more {
		n := &testNode{id: uint64(i + 1), dir: t.TempDir(), peers: peers}
		if i >= count {
			n.join = true
			n.peers = map[uint64]string{n.id: address[n.id]}
			for id, a := range peers {
				n.peers[id] = a
			}
		} else {
			n.start(t)
		}
		all = append(all, n)
	}
	return all
}

// leader waits until a node leads.
func leader(t testing.TB, all []*testNode) *testNode {
	t.Helper()
	var found *testNode
	testenv.Eventually(t, "the cluster does not get there", func() bool {
		for _, n := range all {
			if n.Node != nil && n.Status().Leading {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// propose proposes values on the node that leads, and waits until they are committed. It returns the
// leader. A node that begins to lead has all that was committed, so what it does not have then is lost.
func propose(t testing.TB, all []*testNode, values ...uint64) *testNode {
	t.Helper()
	for {
		n := leader(t, all)
		s := n.Status()
		missing := func() bool {
			has := map[uint64]bool{}
			for _, v := range n.owner.has() {
				has[v] = true
			}
			return slices.ContainsFunc(values, func(v uint64) bool { return !has[v] })
		}
		has := n.owner.has()
		for _, v := range values {
			if slices.Contains(has, v) {
				continue
			}
			if err := n.Room(t.Context()); err != nil {
				t.Fatal(err)
			}
			e := commit.Entry{Count: 1, Records: binary.BigEndian.AppendUint64(nil, v)}
			if _, err := n.Propose(s.Term, &e); err != nil {
				break
			}
			n.proposed++
		}
		testenv.Eventually(t, "neither committed nor another term", func() bool { return n.Status() != s || !missing() })
		if !missing() {
			return n
		}
	}
}

// reshape changes the members, on the node that leads, until a condition of the members holds.
func reshape(t testing.TB, all []*testNode, c Change, done func([]Member) bool) {
	t.Helper()
	testenv.Eventually(t, "the change is not made", func() bool {
		n := leader(t, all)
		if done(n.Members()) {
			return true
		}
		err := n.Change(t.Context(), c)
		for _, retry := range []error{nil, ErrNotLeader, ErrUnknown, ErrBusy, ErrMember, ErrMajority} {
			if errors.Is(err, retry) {
				return false
			}
		}
		t.Fatal(err)
		return false
	})
}

func memberIs(id uint64, learner bool) func([]Member) bool {
	return func(all []Member) bool {
		return slices.ContainsFunc(all, func(m Member) bool { return m.Node == id && m.Learner == learner })
	}
}

// same waits until nodes have the same values.
func same(t testing.TB, all []*testNode, want []uint64) {
	t.Helper()
	for _, n := range all {
		testenv.Eventually(t, "the cluster does not get there", func() bool { return slices.Equal(n.owner.has(), want) })
	}
}

func upTo(n uint64) (all []uint64) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// TestThreeNodesOnDisk shows that three nodes with real disks and sockets agree, go on when the
// leader ends, and have everything after a restart of all.
func TestThreeNodesOnDisk(t *testing.T) {
	all := newCluster(t, 3, 0)
	n := propose(t, all, upTo(100)...)
	same(t, all, upTo(100))
	for _, n := range all {
		if _, err := n.ReadIndex(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := n.Transfer(t.Context(), 0); err != nil && !errors.Is(err, ErrNotLeader) {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(o *testNode) bool { return o == n })
	propose(t, rest, 101)
	n.start(t)
	same(t, all, upTo(101))
	for _, n := range all {
		n.Close()
	}
	for _, n := range all {
		n.start(t)
	}
	propose(t, all, 102)
	same(t, all, upTo(102))
}

// TestJoinBySnapshot shows that a node which joins gets a snapshot, and can become a voter; and that
// a node is removed only if a majority is left.
func TestJoinBySnapshot(t *testing.T) {
	all := newCluster(t, 3, 1)
	joins := all[3]
	n := propose(t, all[:3], upTo(2000)...)
	if err := n.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	propose(t, all[:3], 2001)
	reshape(t, all[:3], Change{ChangeAdd, joins.id, joins.peers[joins.id]}, memberIs(joins.id, true))
	joins.start(t)
	same(t, all, upTo(2001))
	reshape(t, all[:3], Change{Kind: ChangePromote, Node: joins.id}, memberIs(joins.id, false))
	gone := all[0]
	reshape(t, all, Change{Kind: ChangeRemove, Node: gone.id}, func(m []Member) bool { return len(m) == 3 })
	gone.Close()
	rest := all[1:]
	propose(t, rest, 2002)
	same(t, rest, upTo(2002))
	onlyOnce := func() {
		t.Helper()
		testenv.Eventually(t, "a number is used again", func() bool {
			err := leader(t, rest).Change(t.Context(), Change{ChangeAdd, gone.id, "tcp://127.0.0.1:1"})
			return errors.Is(err, ErrMember) && strings.Contains(err.Error(), "not used again")
		})
	}
	onlyOnce()
	joins.Close()
	var missing *MajorityError
	testenv.Eventually(t, "a change that leaves no majority is not refused", func() bool {
		n := leader(t, rest[:2])
		if slices.ContainsFunc(n.Members(), func(m Member) bool { return m.Node == joins.id && m.Active }) {
			return false
		}
		other := rest[0]
		if other == n {
			other = rest[1]
		}
		return errors.As(n.Change(t.Context(), Change{Kind: ChangeRemove, Node: other.id}), &missing)
	})
	if !slices.Contains(missing.Missing, joins.id) {
		t.Errorf("missing %v, want %d", missing.Missing, joins.id)
	}
	joins.start(t)
	propose(t, rest, 2003)
	same(t, rest, upTo(2003))
	for _, n := range rest {
		n.Close()
	}
	for _, n := range rest {
		n.start(t)
	}
	propose(t, rest, 2004)
	onlyOnce()
}

// TestForeignDirectory shows that the directory of another node or cluster is refused.
func TestForeignDirectory(t *testing.T) {
	all := newCluster(t, 1, 0)
	propose(t, all, 1)
	all[0].Close()
	for _, o := range []Options{{Node: 2, Cluster: ID{7}}, {Node: 1, Cluster: ID{8}}} {
		o.Dir, o.Owner, o.Transport = all[0].dir, &lister{}, simTransport{}
		o.Peers = map[uint64]string{1: "tcp://127.0.0.1:1", 2: "tcp://127.0.0.1:2"}
		_, err := Open(o)
		var foreign *ForeignError
		if !errors.As(err, &foreign) || !errors.Is(err, ErrForeign) {
			t.Errorf("node %d of cluster %v: %v", o.Node, o.Cluster, err)
		}
	}
	all[0].start(t)
	same(t, all, upTo(1))
}

// TestNoMajority shows that a node without a majority commits nothing, and that what it has proposed
// is reported when it ends.
func TestNoMajority(t *testing.T) {
	all := newCluster(t, 3, 0)
	n := propose(t, all, 1)
	for _, o := range all {
		if o != n {
			o.Close()
		}
	}
	testenv.Eventually(t, "a node without a majority leads", func() bool {
		_, err := n.Propose(n.Status().Term, &commit.Entry{Records: make([]byte, 8)})
		if err == nil {
			n.proposed++
		}
		return errors.Is(err, ErrNotLeader) && n.Status().Role != RoleLeader
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := testenv.Blocked(t, "ReadIndex", func() error { _, err := n.ReadIndex(ctx); return err })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n.Close()
	if n.owner.lost+n.owner.own != n.proposed || !slices.Equal(n.owner.has(), upTo(1)) {
		t.Errorf("%d proposals, %d reported as lost, %d as committed; values %v", n.proposed, n.owner.lost, n.owner.own, n.owner.has())
	}
}

// TestFlushAtIntervals shows that with another policy than Always the log is flushed, too.
func TestFlushAtIntervals(t *testing.T) {
	n := &testNode{id: 1, dir: t.TempDir(), peers: map[uint64]string{1: fmt.Sprintf("tcp://127.0.0.1:%d", testenv.FreePort(t))}, interval: true}
	n.start(t)
	all := []*testNode{n}
	propose(t, all, upTo(10)...)
	testenv.Eventually(t, "the log is not flushed", func() bool { return n.disk.log.Synced() == n.disk.log.Last() })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	same(t, all, upTo(10))
}

// TestReadsThatEndAreForgotten shows that reads whose callers wait no more take no memory, while there
// is nobody to answer them.
func TestReadsThatEndAreForgotten(t *testing.T) {
	s, n := scenario(t)
	for _, o := range s.nodes {
		if o != n {
			o.crash(true)
		}
	}
	for range 100 {
		n.core.read(func(uint64, error) { t.Error("answered") }).gone.Store(true)
	}
	s.run(50, nil)
	if r := &n.core.reads; len(r.waiting)+len(r.round)+len(r.found) > 0 {
		t.Errorf("%d wait, %d are asked, %d are found", len(r.waiting), len(r.round), len(r.found))
	}
}
