package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// usual is the fleet of the flags' defaults.
var (
	usual = fleet{Replicas: 100_000, Updates: 1000, Update: 100, Map: 100e6, Delay: 50 * time.Millisecond, Detect: 5 * time.Second, Beat: time.Second,
		Cores: 8, Network: 1.25e9, Connections: 10_000, Load: 0.5}
	measured = costs{4 * time.Microsecond, 28 * time.Nanosecond, 270 * time.Microsecond, 1200 * time.Microsecond}
)

// What is computed for the loss of a node, whose replicas spread evenly, is what the simulation comes to, in which they
// choose by chance: not less, and not more than the busiest node's share of it more.
func TestComputedTimesAreSimulated(t *testing.T) {
	for _, updates := range []float64{0, 1, 1000, 10_000, 100_000} {
		for _, size := range []float64{1e6, 100e6, 1e9} {
			f := usual
			f.Updates, f.Map = updates, size
			p := f.plan(measured)
			for seed := range uint64(20) {
				l := f.simulate(p, f.Map, measured.snapshot(f), true, seed)
				processors, network := f.spare()
				work, wire := measured.snapshot(f).Seconds(), f.Map/network
				busiest := time.Duration(float64(l.Busiest) * max(work/processors, wire) * float64(time.Second))
				one := time.Duration((work*f.Cores/processors + wire) * float64(time.Second))
				least, most := p.Restart-f.Beat, f.Detect+busiest+one
				if l.All < least || l.All > most || l.Half > l.All {
					t.Errorf("%v updates/s, %v bytes, seed %d: simulated %v, computed %v, busiest %d", updates, size, seed, l.All, p.Restart, l.Busiest)
				}
			}
		}
	}
}

// The loss of any node leaves enough of them: those that are left hold all replicas within each limit.
func TestOneNodeIsToSpare(t *testing.T) {
	for _, replicas := range []int{1, 999, 100_000, 3_000_001} {
		f := usual
		f.Replicas = replicas
		p := f.plan(measured)
		each := (replicas + p.Nodes - 2) / (p.Nodes - 1)
		if most := min(p.ByConnections, p.ByNetwork, p.ByProcessors); each > most || p.Nodes < 3 {
			t.Errorf("%d replicas: %d nodes, %d each when one is lost, of %d", replicas, p.Nodes, each, most)
		}
	}
}

// Each number of the page is what the command prints.
func TestPageHasWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../../docs/REPLICAS.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```console\n\\$ go run ./bench/cmd/replicas([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("the page has %d runs of the command", len(blocks))
	}
	for _, b := range blocks {
		var out strings.Builder
		if err := run(strings.Fields(b[1]), &out); err != nil || out.String() != b[2] {
			t.Errorf("replicas%s: %v, prints\n%s", b[1], err, out.String())
		}
	}
}

// What cannot be is refused.
func TestImpossibleFleets(t *testing.T) {
	for _, args := range []string{"-replicas 0", "-updates -1", "-delay 0s", "-cores 0.5", "-load 1", "-network 0", "-max-clients 0", "-nonsense"} {
		if run(strings.Fields(args), new(strings.Builder)) == nil {
			t.Error(args)
		}
	}
}
