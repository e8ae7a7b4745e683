package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"clustermap/internal/bench/worker"
)

// TestMain makes this binary a worker where it is started as one, like the command.
func TestMain(m *testing.M) {
	worker.Main(workers())
	os.Exit(m.Run())
}

// runKV runs the command and returns the result that it wrote to the file.
func runKV(t *testing.T, args ...string) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kv.json")
	var out, log bytes.Buffer
	args = append([]string{"kv", "--rounds", "1", "--updates", "2000", "--keys", "500", "--json", file}, args...)
	if err := run(t.Context(), args, &out, &log); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &log)
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 && !strings.Contains(line, worker.ErrMissing.Error()) {
			t.Errorf("more than 80 columns: %s", line)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Each system that is installed passes on every update.
func TestSystems(t *testing.T) {
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			e := runKV(t, "--systems", s.Name, "--replicas", "2").Cases[0]
			if e.Missing {
				t.Skip(e.Error)
			}
			if e.System != s.Name || len(e.Rates) != 1 || e.Rates[0] <= 0 || e.Updates != 2000 {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	r := runKV(t, "--systems", "bare,chp", "--rounds", "2")
	chp, bare := r.Cases[0], r.Cases[1]
	if chp.System != "chp" || bare.System != "bare" || chp.Ratio != nil || len(bare.Ratios) != 2 || bare.Ratio.Median <= 0 {
		t.Errorf("%+v, %+v", chp, bare)
	}
	if r.Machine.Cores < 1 || r.Machine.Go == "" || r.Date == "" || len(r.Command) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestLatency(t *testing.T) {
	e := runKV(t, "--systems", "chp", "--mode", "latency", "--rate", "20000").Cases[0]
	if len(e.P50) != 1 || e.P50[0] <= 0 || e.P50[0] > e.P99[0] || e.P99[0] > e.P999[0] || e.Sent[0] <= 0 || e.Rates != nil {
		t.Errorf("%+v", e)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--systems", "none"}, {"--mode", "fast"}, {"--keys", "0"}, {"--rounds", "0"}, {"--replicas", "0"},
		{"--updates", "-1"}, {"--rate", "0"}, {"--rate", "100"}, {"--timeout", "0s"}, {"more"}, {"--what"},
	} {
		var out, log bytes.Buffer
		if err := run(t.Context(), append([]string{"kv"}, args...), &out, &log); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
