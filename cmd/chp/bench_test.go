package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

// benchResult is the JSON of chp bench, as the documentation names its fields.
type benchResult struct {
	Updates          int                `json:"updates"`
	Keys             int                `json:"keys"`
	ValueSize        int                `json:"value_size"`
	Publishers       int                `json:"publishers"`
	Replicas         int                `json:"replicas"`
	Seconds          float64            `json:"seconds"`
	UpdatesPerSecond float64            `json:"updates_per_second"`
	Delivered        int                `json:"delivered"`
	Lost             *int               `json:"lost"`
	Doubled          *int               `json:"doubled"`
	OutOfOrder       *int               `json:"out_of_order"`
	ContentEqual     bool               `json:"content_equal"`
	LatencyUS        map[string]float64 `json:"latency_us"`
	Baseline         *float64           `json:"baseline_updates_per_second"`
	Ratio            *float64           `json:"ratio"`
	Sync             string             `json:"sync"`
	Data             *float64           `json:"data_updates_per_second"`
	DataRatio        *float64           `json:"data_ratio"`
	Pair             *float64           `json:"pair_updates_per_second"`
	PairRatio        *float64           `json:"pair_ratio"`
	Nodes            int                `json:"cluster"`
	ClusterSync      string             `json:"cluster_sync"`
	Cluster          *float64           `json:"cluster_updates_per_second"`
	ClusterRatio     *float64           `json:"cluster_ratio"`
	Rounds           []map[string]any   `json:"rounds"`
}

func benchJSON(t *testing.T, args ...string) benchResult {
	t.Helper()
	var r benchResult
	out := must(t, append([]string{"bench", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if *r.Lost+*r.Doubled+*r.OutOfOrder != 0 || !r.ContentEqual || r.Delivered != r.Updates*r.Replicas {
		t.Errorf("%s", out)
	}
	if r.Seconds <= 0 || r.UpdatesPerSecond <= 0 || r.LatencyUS["p50"] <= 0 || r.LatencyUS["p99"] < r.LatencyUS["p50"] {
		t.Errorf("%s", out)
	}
	return r
}

func TestBench(t *testing.T) {
	t.Parallel()
	r := benchJSON(t, "--updates", "5000", "--warmup", "500", "--keys", "300", "--value-size", "40")
	if r.Updates != 5000 || r.Keys != 300 || r.ValueSize != 40 || r.Publishers != 1 || r.Replicas != 1 ||
		r.Baseline != nil || r.Ratio != nil || r.DataRatio != nil || r.PairRatio != nil || r.Sync != "" || len(r.Rounds) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestBenchBaseline(t *testing.T) {
	t.Parallel()
	r := benchJSON(t, "--updates", "3001", "--warmup", "0", "--keys", "7", "--publishers", "2", "--replicas", "2", "--value-size", "300", "--baseline", "--rounds", "2")
	if r.Baseline == nil || r.Ratio == nil || *r.Baseline <= 0 || *r.Ratio <= 0 || len(r.Rounds) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, round := range r.Rounds {
		if round["chp"] == nil || round["baseline"] == nil || round["ratio"] == nil {
			t.Errorf("%v", round)
		}
	}
}

// A server with a log and a pair run beside the plain server. The log's directory is
// removed.
func TestBenchDataAndPair(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := benchJSON(t, "--updates", "3000", "--warmup", "100", "--keys", "300", "--publishers", "2", "--replicas", "2", "--data", dir, "--sync", "always", "--pair", "--rounds", "2")
	if r.Baseline != nil || r.Sync != "always" || len(r.Rounds) != 2 {
		t.Errorf("%+v", r)
	}
	for name, f := range map[string]*float64{"data": r.Data, "data ratio": r.DataRatio, "pair": r.Pair, "pair ratio": r.PairRatio} {
		if f == nil || *f <= 0 {
			t.Errorf("no %s: %+v", name, r)
		}
	}
	for _, round := range r.Rounds {
		for _, field := range []string{"data", "data_ratio", "pair", "pair_ratio"} {
			if round[field] == nil {
				t.Errorf("no %s in %v", field, round)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A cluster runs beside the plain server, and its directories are removed.
func TestBenchCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := benchJSON(t, "--updates", "3000", "--warmup", "100", "--keys", "300", "--publishers", "2", "--replicas", "2", "--cluster", "3", "--data", dir, "--rounds", "1")
	if r.Nodes != 3 || r.ClusterSync != "always" || r.Sync != "interval=100ms" || r.Pair != nil || r.Data == nil ||
		r.Cluster == nil || *r.Cluster <= 0 || r.ClusterRatio == nil || *r.ClusterRatio <= 0 {
		t.Errorf("%+v", r)
	}
	if round := r.Rounds[0]; round["cluster"] == nil || round["cluster_ratio"] == nil {
		t.Errorf("%v", round)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestBenchClusterText(t *testing.T) {
	t.Parallel()
	out := must(t, "bench", "--updates", "500", "--warmup", "0", "--keys", "10", "--cluster", "5", "--sync", "never", "--rounds", "1")
	for _, want := range []string{"5 nodes, --sync never", "cluster/s"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestBenchDataText(t *testing.T) {
	t.Parallel()
	out := must(t, "bench", "--updates", "500", "--warmup", "0", "--keys", "10", "--data", t.TempDir(), "--pair", "--rounds", "1")
	for _, want := range []string{"--sync interval=100ms", "two servers", "data/s", "pair/s"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestBenchText(t *testing.T) {
	t.Parallel()
	out := must(t, "bench", "--updates", "1000", "--warmup", "0", "--keys", "10", "--baseline", "--rounds", "1")
	for _, want := range []string{"1000 updates of 10 keys", "in order", "updates/s", "ratio"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	testenv.Must(t, os.WriteFile(file, nil, 0o600))
	try(t, "bench", "--data", file+"s").expect(t, exitUsage, file+"s: ")
	try(t, "bench", "--data", file).expect(t, exitUsage, "--data: "+file+" is not a directory")
	try(t, "bench", "--sync", "always").expect(t, exitUsage, "--sync needs --data or --cluster")
	try(t, "bench", "--rounds", "0").expect(t, exitUsage, "--rounds 0: give 1 to 1000")
}

func TestBenchAtRate(t *testing.T) {
	t.Parallel()
	r := benchJSON(t, "--updates", "500", "--warmup", "0", "--keys", "10", "--rate", "5000")
	if r.UpdatesPerSecond > 6000 {
		t.Errorf("%v updates a second", r.UpdatesPerSecond)
	}
}

func TestBenchProfiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "profiles")
	benchJSON(t, "--updates", "1000", "--warmup", "0", "--keys", "10", "--profile", dir)
	for _, name := range []string{"server-1.prof", "publisher-1.prof", "replica-1.prof"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An existing server is left as it was.
func TestBenchOnServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "mine", "1", "--server", s.endpoint)
	before := must(t, "dump", "--server", s.endpoint)
	benchJSON(t, "--updates", "2000", "--warmup", "100", "--keys", "50", "--replicas", "2", "--server", s.endpoint)
	if after := must(t, "dump", "--server", s.endpoint); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

// A run that does not come to its end gives no rate.
func TestBenchWhoseServerIsKilled(t *testing.T) {
	t.Parallel()
	s := serveApart(t)
	w := start(t, "watch", "--server", s.endpoint)
	w.line()
	b := start(t, "bench", "--json", "--updates", "100000000", "--warmup", "0", "--rate", "10000", "--timeout", "10s", "--server", s.endpoint)
	w.line() // the publisher is at work
	s.cmd.Process.Kill()
	out, _ := b.stdout.ReadString(0)
	if code := b.wait(); code != exitRefused || strings.Contains(out, "updates_per_second") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, b.stderr.String())
	}
	if !strings.HasPrefix(b.stderr.String(), "chp: ") {
		t.Errorf("stderr %q", b.stderr.String())
	}
}

// However a benchmark ends, none of its processes stays. They share its standard
// error, so that the end of that is the end of them all.
func TestBenchLeavesNoProcess(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*process){
		"interrupted": func(p *process) { p.signal(os.Interrupt) },
		"killed":      func(p *process) { p.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveApart(t)
			w := start(t, "watch", "--server", s.endpoint)
			w.line()
			cmd := program(t, "bench", "--updates", "100000000", "--warmup", "0", "--rate", "10000", "--server", s.endpoint)
			r, stderr, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.Stderr = stderr
			b := startCommand(t, cmd)
			stderr.Close()
			w.line()
			end(b)
			text, err := io.ReadAll(r)
			if err != nil {
				t.Error(err)
			}
			if code := b.wait(); code == exitDone {
				t.Error("exit code 0")
			}
			if name == "interrupted" && !strings.Contains(string(text), "interrupted") {
				t.Errorf("stderr %q", text)
			}
		})
	}
}
