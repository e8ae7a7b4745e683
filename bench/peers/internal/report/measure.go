package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"clustermap/internal/bench/figures"
)

// Measuring says how to measure.
type Measuring struct {
	Folder string         // for the results; it exists
	Rounds int            // of each measurement
	Only   *regexp.Regexp // names of the measurements to run
	Quick  bool           // only whether they work: their figures mean nothing
	Log    io.Writer      // for progress
}

// step is a measurement: a command of this module or the main one, or a run of go test.
type step struct {
	name    string // of the file of the results, without its ending
	program string // package of a command; empty: go test
	dir     string // where to build the command, or to run go test: a module's folder
	args    []string
	file    string // flag for the file of the results; empty: it prints them
}

// mainModule is the folder of the main module, from that of this one.
const mainModule = "../.."

// steps returns the measurements, in their order.
func (m *Measuring) steps() []step {
	rounds := strconv.Itoa(m.Rounds)
	// Cases of cmd/compare: those that have the same library at both ends, and of them those
	// for libraries that are measured over tcp only, and those where batches can be sent; and
	// those with ours at one end.
	const (
		alone   = `^[a-z]+-[a-z]+/[a-z]+/[0-9A-Za-z]+(/to-[0-9]+)?(/topic)?(/curve)?(/recv)?$`
		overTCP = `^[a-z]+-[a-z]+/tcp/[0-9A-Za-z]+(/to-[0-9]+)?(/topic)?(/recv)?$`
		batches = `^push-pull/[a-z]+/[0-9A-Za-z]+(/curve)?$`
		mixed   = `/(ours-to-|libzmq-to-)`
	)
	compare := func(name string, args ...string) step {
		// Half a second is enough for the rates to be steady, and short enough for all cases in an hour.
		spent := []string{"--time", "500ms", "--warm", "200ms"}
		if m.Quick {
			spent = []string{"--time", "20ms", "--warm", "10ms"}
		}
		args = append(append([]string{"--json", "--rounds", rounds}, spent...), args...)
		return step{name: "sockets-" + name, program: "./cmd/compare", args: args}
	}
	kv := func(name string, args ...string) step {
		args = append([]string{"--rounds", rounds}, args...)
		if m.Quick {
			args = append(args, "--updates", "2000", "--keys", "100")
		}
		return step{name: "kv-" + name, program: "./cmd/kv", args: args, file: "--json"}
	}
	bench := func(name, dir, packages, choice, benchtime string, more ...string) step {
		if m.Quick {
			benchtime = "1x"
		}
		args := []string{"test", "-run", "^$", "-bench", choice, "-benchtime", benchtime, "-timeout", "12h", packages}
		return step{name: "go-" + name, dir: dir, args: append(args, more...)}
	}
	// Several runs of the benchmarks, each of which is a line of its own.
	count := func(s step) step {
		s.args = append([]string{"test", "-count", rounds}, s.args[1:]...)
		return s
	}
	keys, updates, deliveries := "10000,100000,1000000", "5000000", "10000000"
	subtreeUpdates := "2000000"
	many := []string{"-keys.many", "1000000", "-keys.updates", updates, "-keys.slow", "10000"}
	join := []string{"-join.keys", "1000000", "-join.passes", "100"}
	brokers := []string{"--json", "--rounds", rounds, "--size", "64,4096,65536"}
	if m.Quick {
		keys, updates, deliveries = "1000,10000", "20000", "100000"
		subtreeUpdates = "10000"
		many = []string{"-keys.many", "20000", "-keys.updates", updates, "-keys.slow", "100"}
		join = []string{"-join.keys", "10000", "-join.passes", "1"}
		brokers = append(brokers, "--workers", "10", "--time", "500ms", "--warm", "500ms")
	}
	return []step{
		compare("libzmq", "--cases", alone),
		compare("libzmq-batch", "--cases", batches, "--batch", "100"),
		compare("libzmq-mixed", "--cases", mixed),
		compare("pebbe", "--cases", overTCP, "--peer", "pebbe"),
		compare("go-zeromq", "--cases", overTCP, "--peer", "go-zeromq"),
		kv("rate"),
		kv("latency", "--mode", "latency"),
		// The log is in the folder of the results, on a disk and not in memory.
		{name: "chp-bench", program: "./cmd/chp", dir: mainModule,
			args: []string{"bench", "--json", "--baseline", "--data", m.Folder, "--pair", "--rounds", rounds, "--updates", updates}},
		{name: "majordomo", program: "./cmd/majordomo", args: brokers},
		count(bench("map", ".", ".", "^BenchmarkMap$", "1s", "-map.keys", keys)),
		count(bench("latency", mainModule, "./bench", "^Benchmark(RoundTrip|SetSync)$", "1s")),
		count(bench("layers", mainModule, "./bench", "^Benchmark(Codec|OneWay|PushPull|PubSub|Server|Processes)$", "1s")),
		count(bench("endtoend", mainModule, "./bench", "^BenchmarkEndToEnd$", "3x")),
		count(bench("fanout", mainModule, "./bench", "^BenchmarkFanOut$", "1x", "-fanout.deliveries", deliveries)),
		count(bench("subtrees", mainModule, "./bench", "^BenchmarkSubtrees$", "1x", "-fanout.updates", subtreeUpdates)),
		bench("keys", mainModule, "./bench", "^BenchmarkKeys$", rounds+"x", many...),
		count(bench("join", mainModule, "./bench", "^BenchmarkJoin$", "1x", join...)),
		bench("failover", mainModule, "./bench", "^BenchmarkFailover$", "20x"),
	}
}

// Steps returns the names of all measurements, in their order.
func Steps() (names []string) {
	for _, s := range new(Measuring).steps() {
		names = append(names, s.name)
	}
	return names
}

// Run runs the measurements one after the other, and stores the results of each. A
// measurement that fails does not keep the others from running; the errors of all are
// returned together. The current folder must be that of the module of this package.
func (m *Measuring) Run(ctx context.Context) error {
	origins := map[string]Origin{}
	if err := readJSON(filepath.Join(m.Folder, originsFile), &origins); err != nil {
		return err
	}
	var steps []step
	for _, s := range m.steps() {
		if !m.Only.MatchString(s.name) {
			continue
		}
		if o, ok := origins[s.name]; ok && m.Quick && !o.Quick {
			return fmt.Errorf("%s has figures of %s, which those of a quick run would replace", m.Folder, s.name)
		}
		steps = append(steps, s)
	}
	if len(steps) == 0 {
		return fmt.Errorf("no measurement matches %q; they are %s", m.Only, strings.Join(Steps(), ", "))
	}
	programs, err := os.MkdirTemp("", "report")
	if err != nil {
		return err
	}
	defer os.RemoveAll(programs)
	var all error
	for _, s := range steps {
		begun := time.Now()
		fmt.Fprintf(m.Log, "%s: %s\n", s.name, strings.Join(s.args, " "))
		stored, err := m.measure(ctx, &s, programs)
		if stored {
			o := m.origin(begun)
			o.Incomplete = err != nil
			origins[s.name] = o
			err = errors.Join(err, writeOrigins(m.Folder, origins))
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", s.name, err))
			fmt.Fprintf(m.Log, "%s: %v\n", s.name, err)
		}
		if ctx.Err() != nil {
			return errors.Join(all, ctx.Err())
		}
		fmt.Fprintf(m.Log, "%s: %v\n", s.name, time.Since(begun).Round(time.Second))
	}
	return all
}

// measure runs one measurement, and reports whether it has stored results: also if there
// was an error, for some of the cases may have figures. But those do not replace earlier
// ones.
func (m *Measuring) measure(ctx context.Context, s *step, programs string) (stored bool, _ error) {
	ending := ".json"
	name, args := "go", s.args
	if s.program == "" {
		ending = ".txt"
	} else {
		// Built, for go run does not pass on a signal.
		name = filepath.Join(programs, filepath.Base(s.program))
		if err := run(ctx, m.Log, m.Log, s.dir, "go", "build", "-o", name, s.program); err != nil {
			return false, err
		}
	}
	path := filepath.Join(m.Folder, s.name+ending)
	var out []byte
	var err error
	if s.file != "" {
		temporary := filepath.Join(programs, s.name+ending)
		err = run(ctx, m.Log, m.Log, "", name, append(args, s.file, temporary)...)
		text, e := os.ReadFile(temporary)
		if e != nil {
			return false, errors.Join(err, e)
		}
		out = text
	} else {
		var printed bytes.Buffer
		dir := s.dir
		if s.program != "" {
			dir = ""
		}
		err = run(ctx, &printed, m.Log, dir, name, args...)
		out = printed.Bytes()
	}
	if len(out) == 0 {
		return false, err
	}
	if _, earlier := os.Stat(path); err != nil && earlier == nil {
		path += ".incomplete"
		return false, errors.Join(err, os.WriteFile(path, out, 0o644), fmt.Errorf("the earlier results stay; those of this run are in %s", path))
	}
	if e := os.WriteFile(path, out, 0o644); e != nil {
		return false, errors.Join(err, e)
	}
	return true, err
}

// run runs a program, which is interrupted when the context ends.
func run(ctx context.Context, stdout, stderr io.Writer, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.Run()
}

// origin describes a measurement of this run that began then.
func (m *Measuring) origin(begun time.Time) Origin {
	return Origin{
		Date: begun.Format(time.RFC3339), System: runtime.GOOS + "/" + runtime.GOARCH,
		Processor: figures.Processor(), Cores: runtime.NumCPU(), Go: runtime.Version(), Quick: m.Quick,
	}
}

func writeOrigins(folder string, origins map[string]Origin) error {
	text, err := json.MarshalIndent(origins, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, originsFile), append(text, '\n'), 0o644)
}

// WriteCharts draws all plots into a folder, and returns their paths.
func (d *Data) WriteCharts(folder string) (paths []string, err error) {
	for _, c := range d.charts() {
		path := filepath.Join(folder, c.File)
		if err := c.write(path); err != nil {
			return paths, fmt.Errorf("%s: %w", c.File, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
