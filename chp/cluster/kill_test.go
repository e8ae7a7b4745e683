package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/testenv"
)

// childVariable makes this test binary run a node in a process of its own.
const childVariable = "CLUSTERMAP_CLUSTER_CHILD"

// kills is how often TestKill kills.
var kills = flag.Int("kills", 6, "number of kills of TestKill; each takes about a second")

func TestMain(m *testing.M) {
	if config := os.Getenv(childVariable); config != "" {
		if err := child(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// childConfig says what a child runs.
type childConfig struct {
	Node     uint64
	Dir      string
	Peers    map[uint64]string
	Election time.Duration
	Entry    int
	Ahead    int
}

// teller is the owner of a child: it prints what it has proposed and is committed.
type teller struct {
	lister
	out  *bufio.Writer
	lead chan Status
}

func (o *teller) Committed(all []Committed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range all {
		v, _, _ := o.add(&e.Entry)
		if e.Own {
			fmt.Fprintln(o.out, v)
		}
	}
	o.out.Flush()
}

func (o *teller) Changed(s Status) {
	if s.Leading {
		o.mu.Lock()
		fmt.Fprintln(o.out, "leads", s.Term)
		o.out.Flush()
		o.mu.Unlock()
	}
	o.lead <- s
}

func (o *teller) Lost([]Position, bool) {}

// child runs a node that proposes values whenever it leads: the term in the upper half, and a
// number that the process has not used.
func child(config string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) // ends with the test
		cancel()
	}()
	transport, err := NewSocketTransport(ctx, SocketOptions{Node: c.Node, Cluster: ID{7}, Listen: c.Peers[c.Node]})
	if err != nil {
		return err
	}
	o := &teller{out: bufio.NewWriter(os.Stdout), lead: make(chan Status, 1<<16)}
	n, err := Open(Options{
		Dir: c.Dir, Node: c.Node, Cluster: ID{7}, Peers: c.Peers, Policy: commit.Always(), Owner: o, Transport: transport,
		ElectionTimeout: c.Election, RoomBytes: c.Ahead * (c.Entry + 200), TailBytes: 1 << 20,
	})
	if err != nil {
		return err
	}
	defer n.Close()
	records := make([]byte, c.Entry)
	number := uint64(0)
	var s Status
	for {
		select {
		case s = <-o.lead:
			continue
		case <-ctx.Done():
			return nil
		default:
		}
		if !s.Leading {
			select {
			case s = <-o.lead:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		if n.Room(ctx) != nil {
			return n.Err()
		}
		number++
		binary.BigEndian.PutUint64(records, s.Term<<32|number)
		_, err := n.Propose(s.Term, &commit.Entry{Count: 1, Records: records})
		if err != nil { // the next status comes, or came
			s.Leading = false
		}
		if number%5000 == 0 && n.Save(ctx) != nil {
			return n.Err()
		}
	}
}

// TestKill shows that processes that are killed at any time, with real disks and sockets, lose
// nothing that was reported as committed, and agree.
func TestKill(t *testing.T) {
	c := childConfig{Peers: map[uint64]string{}, Election: 300 * time.Millisecond, Entry: 1000, Ahead: 8}
	dirs := map[uint64]string{}
	for id := range uint64(3) {
		c.Peers[id+1] = fmt.Sprintf("tcp://127.0.0.1:%d", testenv.FreePort(t))
		dirs[id+1] = t.TempDir()
	}
	var mu sync.Mutex
	told := map[uint64]bool{}
	leads := uint64(0)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(told)
	}
	children := map[uint64]*testenv.Child{}
	start := func(id uint64) {
		one := c
		one.Node, one.Dir = id, dirs[id]
		b, err := json.Marshal(&one)
		testenv.Must(t, err)
		child := testenv.StartChild(t, childVariable, string(b))
		children[id] = child
		go func() {
			for {
				line, err := child.Out.ReadString('\n')
				if err != nil {
					return
				}
				line = strings.TrimSpace(line)
				mu.Lock()
				if strings.HasPrefix(line, "leads") {
					leads = id
				} else if v, err := strconv.ParseUint(line, 10, 64); err == nil {
					told[v] = true
				}
				mu.Unlock()
			}
		}()
	}
	for id := range dirs {
		start(id)
	}
	more := func() time.Duration {
		begin, want := time.Now(), count()+1
		testenv.Eventually(t, "nothing is committed any more", func() bool { return count() >= want })
		return time.Since(begin)
	}
	var pauses []time.Duration
	for i := range *kills {
		more()
		for before := count(); count() < before+200; more() {
		}
		mu.Lock()
		id := leads
		mu.Unlock()
		if i%3 == 2 { // another one, or all
			id = 1 + rand.Uint64N(3)
		}
		if i%6 == 5 {
			for _, child := range children {
				child.Kill()
			}
			for id := range dirs {
				start(id)
			}
			continue
		}
		children[id].Kill()
		pauses = append(pauses, more())
		start(id)
	}
	for _, child := range children {
		child.Kill()
	}
	slices.Sort(pauses)
	t.Logf("%d committed; after a kill the next one took %v", count(), pauses)
	var all []*testNode
	for id := range uint64(3) {
		n := &testNode{id: id + 1, dir: dirs[id+1], peers: c.Peers}
		n.start(t)
		all = append(all, n)
	}
	want := propose(t, all, 1).owner.has()
	same(t, all, want)
	have := map[uint64]bool{}
	for _, v := range want {
		if have[v] {
			t.Errorf("value %x is there twice", v)
		}
		have[v] = true
	}
	for v := range told {
		if !have[v] {
			t.Errorf("value %x was reported as committed, and is lost", v)
		}
	}
}

// BenchmarkProcesses measures three nodes in a process each, over TCP, with a flush of each disk.
func BenchmarkProcesses(b *testing.B) {
	for _, size := range []int{64 << 10, 128 << 10, 4 << 10} {
		for _, ahead := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("size=%d/ahead=%d", size, ahead), func(b *testing.B) {
				c := childConfig{Peers: map[uint64]string{}, Election: time.Second, Entry: size, Ahead: ahead}
				for id := range uint64(3) {
					c.Peers[id+1] = fmt.Sprintf("tcp://127.0.0.1:%d", testenv.FreePort(b))
				}
				lines := make(chan string, 1<<16)
				for id := range c.Peers {
					one := c
					one.Node, one.Dir = id, b.TempDir()
					config, err := json.Marshal(&one)
					testenv.Must(b, err)
					child := testenv.StartChild(b, childVariable, string(config))
					defer child.Kill()
					go func() {
						for {
							line, err := child.Out.ReadString('\n')
							if err != nil {
								return
							}
							lines <- line
						}
					}()
				}
				for range 200 { // warm
					<-lines
				}
				b.SetBytes(int64(size))
				for b.Loop() {
					<-lines
				}
			})
		}
	}
}
