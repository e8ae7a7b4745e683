// Package report reads the results of measurements from a folder, and shows them as a
// table and as plots.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/perf/benchfmt"

	"clustermap/bench/internal/majordomo"
	"clustermap/bench/peers/internal/results"
	"clustermap/internal/bench/figures"
)

// Data is the content of a folder. Fields that were not measured are empty.
type Data struct {
	Origins map[string]Origin // of the measurements, by name
	Sockets []results.Sockets
	KV      []*results.KVCase
	CHP     *chpBench
	Brokers []majordomo.Result
	Go      []goResult
}

// Origin is when and where something was measured.
type Origin struct {
	Date      string `json:"date"` // RFC 3339, of the beginning
	System    string `json:"system"`
	Processor string `json:"processor,omitempty"`
	Cores     int    `json:"cores"`
	Go        string `json:"go"`

	Quick      bool `json:"quick,omitempty"`      // the figures mean nothing
	Incomplete bool `json:"incomplete,omitempty"` // it failed or was interrupted
}

// chpBench is the result of chp bench.
type chpBench struct {
	Rounds []struct {
		CHP      rate `json:"chp"`
		Baseline rate `json:"baseline"`
		Data     rate `json:"data"`
		Pair     rate `json:"pair"`
	} `json:"rounds"`
}

type rate struct {
	UpdatesPerSecond float64 `json:"updates_per_second"`
}

// goResult holds the figures that one benchmark of package testing has reported, in all
// its runs.
type goResult struct {
	name   string            // without the prefix Benchmark and the key=value parts
	keys   map[string]string // of key=value
	values map[string][]float64
}

func (g *goResult) one(unit string) figures.Summary { return figures.Of(g.values[unit]) }

// Names of files. The results of several runs of cmd/compare, cmd/kv and go test have
// names that begin and end so.
const (
	originsFile  = "origins.json"
	socketsFiles = "sockets-*.json"
	kvFiles      = "kv-*.json"
	chpFile      = "chp-bench.json"
	brokersFile  = "majordomo.json"
	goFiles      = "go-*.txt"
)

// Load reads a folder.
func Load(folder string) (*Data, error) {
	d := &Data{}
	err := errors.Join(
		readJSON(filepath.Join(folder, originsFile), &d.Origins),
		readJSON(filepath.Join(folder, chpFile), &d.CHP),
		readJSON(filepath.Join(folder, brokersFile), &d.Brokers),
		each(folder, socketsFiles, func(path string) error {
			var cases []results.Sockets
			err := readJSON(path, &cases)
			d.Sockets = append(d.Sockets, cases...)
			return err
		}),
		each(folder, kvFiles, func(path string) error {
			var r results.KV
			err := readJSON(path, &r)
			d.KV = append(d.KV, r.Cases...)
			return err
		}),
		each(folder, goFiles, d.readGo))
	if err != nil {
		return nil, err
	}
	if len(d.Sockets)+len(d.KV)+len(d.Brokers)+len(d.Go) == 0 && d.CHP == nil {
		return nil, fmt.Errorf("%s has no results", folder)
	}
	return d, nil
}

// each calls f with every file that matches, in the order of their names.
func each(folder, pattern string, f func(path string) error) error {
	paths, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := f(path); err != nil {
			return err
		}
	}
	return nil
}

// readJSON reads a file. Without one it changes nothing.
func readJSON(path string, to any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readGo reads the output of go test -bench.
func (d *Data) readGo(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	at := map[string]int{}
	r := benchfmt.NewReader(f, path)
	for r.Scan() {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue // not a benchmark's line
		}
		full := result.GetConfig("pkg") + " " + result.Name.String()
		i, ok := at[full]
		if !ok {
			i = len(d.Go)
			at[full] = i
			g := goResult{keys: map[string]string{}, values: map[string][]float64{}}
			name, parts := result.Name.Parts()
			g.name = string(name)
			for _, part := range parts {
				if key, value, ok := strings.Cut(strings.TrimPrefix(string(part), "/"), "="); ok {
					g.keys[key] = value
				}
			}
			d.Go = append(d.Go, g)
		}
		for _, v := range result.Values {
			// As printed, not in the units of benchstat.
			value, unit := v.Value, v.Unit
			if v.OrigUnit != "" {
				value, unit = v.OrigValue, v.OrigUnit
			}
			d.Go[i].values[unit] = append(d.Go[i].values[unit], value)
		}
	}
	return r.Err()
}
