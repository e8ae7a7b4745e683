//go:build unix && mutate

package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/mutate"
)

// mutations says for each safeguard that can be switched off which checks notice
// it, and in which shape.
var mutations = []struct {
	name   string
	shape  string // of TestChaos
	run    string // another test
	of     string // the package of run, if it is not this one
	checks []string
	args   []string
}{
	// These replicas never become equal, so the wait for it need not be long.
	{name: "keep-old-keys", shape: "memory", checks: []string{"convergence"}, args: []string{"-convergence", "15s"}},
	{name: "no-gap-check", shape: "memory", checks: []string{"complete", "convergence"}, args: []string{"-only", "drop", "-convergence", "15s"}},
	{name: "merge-stale", shape: "memory", checks: []string{"fresh", "convergence"}, args: []string{"-only", "lag", "-convergence", "15s"}},
	{name: "reconnect", shape: "memory", checks: []string{"complete", "convergence"}, args: []string{"-only", "reset,close"}},
	{name: "drop-slow", shape: "memory", checks: []string{"complete", "convergence"}, args: []string{"-only", "flood", "-faults", "15"}},
	{name: "no-repeat-check", shape: "memory", checks: []string{"twice", "program order"}, args: []string{"-only", "late"}},
	{name: "no-repeat-check", shape: "memory", checks: []string{"exact"}, args: []string{"-only", "reset,late"}}, // for requests
	{name: "ignore-conditions", shape: "memory", checks: []string{"linearizable"}, args: []string{"-only", "rejoin"}},
	// It takes an instant between two events in the server.
	{name: "stale-requests", of: "clustermap/chp/internal/order", run: "^TestLateRequestOfAFormerTermIsNotJudged$"},
	{name: "expire-superseded", shape: "memory", checks: []string{"expiry"}},
	{name: "publish-early", shape: "data", checks: []string{"linearizable"}, args: []string{"-only", "full", "-faults", "10"}},
	{name: "publish-alone", shape: "pair", checks: []string{"linearizable", "fresh", "twice", "acknowledged"}, args: []string{"-only", "full", "-faults", "12"}},

	{name: "accept-cut-off", run: "^TestReturn$/^isolated$", checks: discards},
	{name: "count-starts", run: "^TestReturn$/^several_restarts,_primary_written$", checks: discards},
	{name: "count-expiry", run: "^TestReturn$/^alone,_key_expires$", checks: discards},
	// A server with less steps down as soon as it hears the other one, so it seldom offers its map.
	{name: "copy-any-map", of: "clustermap/chp/internal/partner", run: "^TestPairKeepsNewerMap$"},

	{name: "cluster-ack-early", of: engine, run: simulation, checks: []string{"stored"}, args: []string{"-sim.profile", "all"}},
	{name: "cluster-forget-vote", of: engine, run: "^TestVoteIsKept$", checks: []string{"vote"}}, // the simulation needs some thousand seeds: profile votes
	{name: "cluster-forget-commit", of: engine, run: "^TestCommittedChangeIsKept$"},              // it takes thousands of seeds
	{name: "cluster-apply-early", of: engine, run: simulation, checks: []string{"stored"}, args: []string{"-sim.profile", "all"}},
	{name: "cluster-read-local", of: engine, run: simulation, checks: []string{"read"}, args: []string{"-sim.profile", "all"}},
	{name: "cluster-no-quorum-check", of: engine, run: "^TestDeafLeaderEndsItsTerm$"},
	{name: "cluster-forget-member", of: engine, run: "^TestMetaFile$|^TestDamagedFiles$"},
	{name: "cluster-collect", of: engine, run: "^TestSlowOwnerIsBounded$", checks: []string{"bounds"}},
	{name: "cluster-snapshot-index", of: engine, run: simulation, checks: []string{"snapshot"}, args: []string{"-sim.profile", "all"}},
}

const (
	engine     = "clustermap/chp/cluster"
	simulation = "^TestSimulation$"
)

// discards are the checks that notice a pair that prefers the wrong map.
var discards = []string{"acknowledged", "continues", "reported"}

// attempts is how many seeds a mutation has to be noticed.
const attempts = 4

// TestMutations: when any of the safeguards is switched off the checks notice it.
func TestMutations(t *testing.T) {
	var listed []string
	for _, m := range mutations {
		listed = append(listed, m.name)
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if m.of != "" {
				args := []string{"test", "-tags", "mutate", "-run", m.run, "-v", m.of}
				if len(m.args) > 0 {
					args = append(append(args, "-args"), m.args...)
				}
				cmd := exec.Command("go", args...)
				cmd.Env = append(os.Environ(), mutate.Variable+"="+m.name)
				out, err := cmd.CombinedOutput()
				if err == nil || !bytes.Contains(out, []byte("--- FAIL: Test")) {
					t.Errorf("%v\n%s", err, out)
				}
				if noticed := failure.FindSubmatch(out); noticed != nil {
					t.Logf("noticed by %q", noticed[1])
					if !slices.Contains(m.checks, string(noticed[1])) {
						t.Errorf("not noticed by any of %q", m.checks)
					}
				}
				return
			}
			for seed := range attempts {
				if noticed := mutated(t, m.name, cmp.Or(m.run, "^TestChaos$/^"+m.shape+"$"), m.args, seed+1); len(noticed) > 0 {
					t.Logf("noticed by %q", noticed)
					for _, check := range noticed {
						if slices.Contains(m.checks, check) {
							return
						}
					}
				}
			}
			t.Errorf("not noticed by any of %q", m.checks)
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if noticed := mutated(t, "", "^TestChaos$/^memory$", nil, 1); len(noticed) > 0 {
			t.Errorf("%q fail without a mutation", noticed)
		}
	})
	for _, name := range mutate.Names {
		if !slices.Contains(listed, name) {
			t.Errorf("no test of %s", name)
		}
	}
}

var failure = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: VIOLATED ([a-z ]+): `)

// mutated runs a test in a process with a safeguard switched off, and returns
// the checks that failed.
func mutated(t *testing.T, name, run string, args []string, seed int) (noticed []string) {
	cmd := exec.Command(os.Args[0], append([]string{
		"-test.run", run, "-test.v", "-seed", fmt.Sprint(seed), "-faults", "60", "-history", t.TempDir(),
	}, args...)...)
	cmd.Env = append(os.Environ(), mutate.Variable+"="+name, commandVariable+"="+command(t))
	out, err := cmd.CombinedOutput()
	for _, m := range failure.FindAllSubmatch(out, -1) {
		if check := string(m[1]); !slices.Contains(noticed, check) {
			noticed = append(noticed, check)
		}
	}
	if (err != nil) != (len(noticed) > 0) || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
	return noticed
}
