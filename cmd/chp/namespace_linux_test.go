package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// network is three machines, as network namespaces on one bridge: both servers of a
// pair and their clients. A link that is cut drops packets without notice.
type network struct {
	t    *testing.T
	name string
}

// The machines, by the last byte of their address. The clients' has the bridge.
const (
	machineClients = iota
	machinePrimary
	machineBackup
)

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, name: fmt.Sprintf("chp%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", n.machine(machineClients)).CombinedOutput(); err != nil {
		t.Skipf("this machine makes no network namespaces: %v: %s", err, out)
	}
	t.Cleanup(func() { n.delete(machineClients) })
	n.ip(machineClients, "link", "add", "bridge", "type", "bridge")
	n.ip(machineClients, "address", "add", "10.77.0.100/24", "dev", "bridge")
	n.ip(machineClients, "link", "set", "bridge", "up")
	for _, i := range []int{machinePrimary, machineBackup} {
		if out, err := exec.Command("ip", "netns", "add", n.machine(i)).CombinedOutput(); err != nil {
			t.Fatalf("ip netns add: %v: %s", err, out)
		}
		t.Cleanup(func() { n.delete(i) })
		n.ip(machineClients, "link", "add", port(i), "type", "veth", "peer", "name", "eth0", "netns", n.machine(i))
		n.ip(machineClients, "link", "set", port(i), "master", "bridge", "up")
		n.ip(i, "address", "add", address(i)+"/24", "dev", "eth0")
		n.ip(i, "link", "set", "eth0", "up")
		n.ip(i, "link", "set", "lo", "up")
	}
	return n
}

func (n *network) machine(i int) string { return fmt.Sprintf("%s-%d", n.name, i) }
func port(i int) string                 { return fmt.Sprintf("port%d", i) }
func address(i int) string              { return fmt.Sprintf("10.77.0.%d", i) }

func (n *network) delete(i int) {
	if out, err := exec.Command("ip", "netns", "del", n.machine(i)).CombinedOutput(); err != nil {
		n.t.Errorf("ip netns del: %v: %s", err, out)
	}
}

// ip runs the system's command ip on a machine.
func (n *network) ip(i int, args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", append([]string{"-n", n.machine(i)}, args...)...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// chp returns the command on a machine, not yet started.
func (n *network) chp(i int, args ...string) *exec.Cmd {
	cmd := program(n.t, args...)
	path, err := exec.LookPath("ip")
	if err != nil {
		n.t.Fatal(err)
	}
	cmd.Args = append([]string{"ip", "netns", "exec", n.machine(i), cmd.Path}, args...)
	cmd.Path = path
	return cmd
}

// apart has the servers see the clients, but not each other.
func (n *network) apart(yes bool) {
	n.t.Helper()
	for _, i := range []int{machinePrimary, machineBackup} {
		n.ip(machineClients, "link", "set", port(i), "type", "bridge_slave", "isolated", map[bool]string{true: "on", false: "off"}[yes])
	}
}

// cut takes a machine off the network, or brings it back.
func (n *network) cut(i int, yes bool) {
	n.t.Helper()
	n.ip(machineClients, "link", "set", port(i), map[bool]string{true: "down", false: "up"}[yes])
}

// Neither a partition between the servers of a pair nor one between the active
// server and all others loses an update that was acknowledged, and when the network is
// whole the pair is in sync again: in the first case the active server goes on alone, in
// the second the other one takes over and keeps its reign.
func TestPairPartitioned(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	endpoints := map[int]string{machinePrimary: "tcp://" + address(machinePrimary) + ":5556", machineBackup: "tcp://" + address(machineBackup) + ":5566"}
	both := []string{"--server", endpoints[machinePrimary], "--server", endpoints[machineBackup], "--timeout", "30s"}
	serve := func(i, other int, role string) {
		t.Helper()
		startCommand(t, n.chp(i, "serve", role, "--host", address(i), "--peer", endpoints[other], // and with it the other one's state
			"--bstar-interval", "1s", "--heartbeat", "100ms", "--admin-anywhere", "--diverged", filepath.Join(t.TempDir(), "diverged.jsonl"))).ready()
	}
	run := func(args ...string) outcome {
		t.Helper()
		return runCommand(t, n.chp(machineClients, args...))
	}
	want := map[string]string{}
	set := func(phase string, servers []string) {
		t.Helper()
		for i := range 3 {
			key, value := fmt.Sprintf("/%s/%d", phase, i), fmt.Sprint(len(want))
			run(append([]string{"set", key, value}, servers...)...).expect(t, exitDone, "")
			want[key] = value
		}
	}
	// inSync waits until the server is active and the other one has the same content.
	inSync := func(i int) {
		t.Helper()
		var last outcome
		for deadline := time.Now().Add(testenv.Hang); time.Now().Before(deadline); {
			last = run("status", "--json", "--server", endpoints[i], "--timeout", "1s")
			if strings.TrimSpace(last.out) == "" {
				continue
			}
			if st := object(t, strings.TrimSpace(last.out)); st["state"] == "active" && st["in_sync"] == true {
				return
			}
		}
		t.Fatalf("the pair is not in sync: %+v", last)
	}
	// check checks that the server has every acknowledged update.
	check := func(i int) {
		t.Helper()
		o := run("dump", "--server", endpoints[i])
		o.expect(t, exitDone, "")
		got := map[string]string{}
		for line := range strings.Lines(o.out) {
			var e struct{ Key, Value string }
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			got[e.Key] = e.Value
		}
		if !maps.Equal(got, want) {
			t.Fatalf("the server has %v, want %v", got, want)
		}
	}

	serve(machinePrimary, machineBackup, "--primary")
	serve(machineBackup, machinePrimary, "--backup")
	// A client that asks the backup, because the primary is slow to answer, has it take over.
	primary := []string{"--server", endpoints[machinePrimary], "--timeout", "30s"}
	set("whole", primary)
	inSync(machinePrimary)

	n.apart(true)
	set("apart", primary)
	check(machinePrimary)
	n.apart(false)
	inSync(machinePrimary)

	n.cut(machinePrimary, true)
	set("cut", both)
	check(machineBackup)
	n.cut(machinePrimary, false)
	inSync(machineBackup)
	check(machineBackup)
	// The servers are in sync before each knows that of the other one.
	deadline := time.Now().Add(testenv.Hang)
	for o := run(append([]string{"failover"}, both...)...); o.code != exitDone; o = run(append([]string{"failover"}, both...)...) {
		if time.Now().After(deadline) || !strings.Contains(o.stderr, "does not hand over") {
			t.Fatalf("failover: %+v", o)
		}
	}
	check(machinePrimary)
}
