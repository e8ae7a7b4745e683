package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"clustermap/bench/peers/internal/results"
	"clustermap/internal/bench/worker"
)

// TestMain makes this binary a worker where it is started as one, like the command.
func TestMain(m *testing.M) {
	worker.Main(workers())
	os.Exit(m.Run())
}

// runCluster runs the command and returns the cases that it wrote to the file.
func runCluster(t *testing.T, args ...string) []*results.ClusterCase {
	t.Helper()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "cluster.json")
	var out, log bytes.Buffer
	args = append([]string{"cluster", "--rounds", "1", "--updates", "1000", "--keys", "100", "--callers", "4", "--time", "100ms", "--dir", dir, "--json", file}, args...)
	if err := run(t.Context(), args, &out, &log); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &log)
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 100 {
			t.Errorf("more than 100 columns: %s", line)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r results.Cluster
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r.Cases
}

// Each system has a figure in each mode, or a reason. The time-out is long, so that no other member
// is elected while the machine is busy, but for the kill.
func TestSystems(t *testing.T) {
	for _, c := range []struct{ system, modes, election string }{
		{"chp", "rate,put,puts,failover,reads", "0"},
		{"chp-100ms", "failover", "0"},
		{"etcd", "rate,put,reads", "3s"},
		{"etcd", "failover", "0"},
		{"jetstream", "rate,failover,reads", "0"},
	} {
		t.Run(c.system+" "+c.modes, func(t *testing.T) {
			cases := runCluster(t, "--systems", c.system, "--modes", c.modes, "--election-timeout", c.election)
			if len(cases) != strings.Count(c.modes, ",")+1 {
				t.Fatalf("%d cases", len(cases))
			}
			for _, e := range cases {
				switch {
				case systemOf(c.system).without[e.Mode] != "":
					if !e.Missing || e.Error == "" || e.All != nil {
						t.Errorf("%+v", e)
					}
				case e.Error != "" || len(e.All) != 1 || e.All[0] <= 0 || e.Unit == "" || e.Mode == modePut && e.P99[0] < e.All[0]:
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// The others are compared with ours, mode by mode.
func TestRatios(t *testing.T) {
	cases := func() (all []*entry) {
		for _, mode := range []string{modePut, modeReads} {
			all = append(all, &entry{System: "chp", Mode: mode, All: []float64{2, 6}}, &entry{System: "etcd", Mode: mode, All: []float64{4, 4}})
		}
		return all
	}
	r := &result{Cases: cases()}
	fail(r.Cases[2], "why")
	r.conclude()
	if put := r.Cases[1]; r.Cases[0].Ratio != nil || !slices.Equal(put.Ratios, []float64{0.5, 1.5}) || put.Ratio.Median != 1 {
		t.Errorf("%+v, %+v", r.Cases[0], put)
	}
	if reads := r.Cases[3]; reads.Ratio != nil || reads.Figure.Median != 4 {
		t.Errorf("%+v", reads)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--systems", "none"}, {"--modes", "fast"}, {"--modes", ""}, {"--keys", "0"}, {"--rounds", "0"}, {"--callers", "0"},
		{"--updates", "-1"}, {"--time", "0s"}, {"--election-timeout", "-1s"}, {"--timeout", "0s"}, {"more"}, {"--what"},
	} {
		var out, log bytes.Buffer
		if err := run(t.Context(), append([]string{"cluster"}, args...), &out, &log); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
