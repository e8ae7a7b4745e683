package binarystar

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// childVariable makes the test binary a node with the options in its value.
const childVariable = "BINARYSTAR_TEST_CHILD"

// child runs one node. For each line on standard input it votes once, and prints the
// state on standard output.
func child() {
	value := os.Getenv(childVariable)
	if value == "" {
		return
	}
	var o Options
	if _, err := fmt.Sscan(value, &o.Role, &o.Peer, &o.Interval, &o.Timeout, &o.Epoch); err != nil {
		panic(err)
	}
	o.Bind = "tcp://127.0.0.1:*"
	n, err := New(context.Background(), o)
	if err != nil {
		panic(err)
	}
	fmt.Println(n.Endpoint())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var accept bool
		if lines.Text() == "vote" {
			if accept, err = n.Vote(context.Background()); err != nil {
				panic(err)
			}
		}
		s := n.Status()
		fmt.Println(uint8(s.State), s.Epoch, accept)
	}
	os.Exit(0) // the test has ended
}

// process is a child process that runs a node.
type process struct {
	*testenv.Child
	t        testing.TB
	endpoint string
}

func startProcess(t testing.TB, o Options) *process {
	t.Helper()
	c := testenv.StartChild(t, childVariable, fmt.Sprintf("%d %s %d %d %d", o.Role, o.Peer, o.Interval, o.Timeout, o.Epoch))
	return &process{c, t, c.Line()}
}

// ask returns the node's state and epoch, and whether it accepted the vote.
func (p *process) ask(what string) (s State, epoch uint64, accept bool) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.In, what)
	testenv.Must(p.t, err)
	var number uint8
	_, err = fmt.Sscan(p.Line(), &number, &epoch, &accept)
	testenv.Must(p.t, err)
	return State(number), epoch, accept
}

// TestProcesses: with two processes, the active one is killed, restarted, and stopped for
// a time; in the end one of them serves.
func TestProcesses(t *testing.T) {
	t.Parallel()
	var hears [2]*link
	var o [2]Options
	var p [2]*process
	for i, role := range []Role{RolePrimary, RoleBackup} {
		hears[i] = newLink(t)
		o[i] = Options{Role: role, Peer: hears[i].endpoint(), Interval: 20 * time.Millisecond, Timeout: 300 * time.Millisecond}
	}
	start := func(i int) {
		p[i] = startProcess(t, o[i])
		hears[1-i].lead(p[i].endpoint)
	}
	settled := func() (active int) {
		eventually(t, "one is active and the other one passive, of one reign", func() bool {
			a, ea, _ := p[0].ask("look")
			b, eb, _ := p[1].ask("look")
			if b == StateActive {
				active = 1
			} else {
				active = 0
			}
			return ea == eb && (a == StateActive && b == StatePassive || a == StatePassive && b == StateActive)
		})
		return active
	}
	vote := func(i int) {
		eventually(t, "a vote is accepted", func() bool {
			_, _, accept := p[i].ask("vote")
			return accept
		})
	}
	start(0)
	start(1)
	active := settled()
	for range 2 {
		hears[1-active].astray()
		p[active].Kill()
		vote(1 - active)
		start(active)
		active = settled()
	}
	for range 2 {
		_, before, _ := p[active].ask("look")
		resume := p[active].Suspend()
		vote(1 - active)
		resume()
		active = settled()
		if _, after, _ := p[active].ask("look"); after <= before {
			t.Errorf("epoch %d after %d", after, before)
		}
	}
}
