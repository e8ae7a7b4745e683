package report

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// example is a folder with results of every kind, whose figures are made up.
func example(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"origins.json": `{"kv-rate":{"date":"2026-01-02T03:04:05Z","system":"linux/amd64","processor":"A processor","cores":2,"go":"go1.26"},
			"go-map":{"date":"2026-01-01T03:04:05Z","system":"linux/amd64","processor":"A processor","cores":2,"go":"go1.26","quick":true},
			"go-bench":{"date":"2026-01-03T03:04:05Z","system":"darwin/arm64","cores":8,"go":"go1.26","incomplete":true}}`,
		"sockets-libzmq.json": `[
			{"case":"push-pull/tcp/64","pattern":"push-pull","transport":"tcp","size":64,"first":"ours","second":"ours","peer":"libzmq","unit":"msg/s","all_ours":[3e6,1e6,2e6],"all_theirs":[4e5,6e5,5e5],"ratios":[7.5,1.67,4]},
			{"case":"push-pull/tcp/64/recv","pattern":"push-pull","transport":"tcp","size":64,"receive":"Recv","first":"ours","second":"ours","peer":"libzmq","unit":"msg/s","all_ours":[8e5],"all_theirs":[6e5],"ratios":[1.33]},
			{"case":"push-pull/tcp/64/recvinto","pattern":"push-pull","transport":"tcp","size":64,"receive":"RecvInto","first":"ours","second":"ours","peer":"libzmq","unit":"msg/s","all_ours":[15e5],"all_theirs":[6e5],"ratios":[2.5]},
			{"case":"push-pull/ipc/64/curve","pattern":"push-pull","transport":"ipc","size":64,"curve":true,"first":"ours","second":"ours","peer":"libzmq","unit":"msg/s","all_ours":[5e5],"all_theirs":[1e6],"ratios":[0.5]},
			{"case":"push-pull/tcp/64/ours-to-libzmq","pattern":"push-pull","transport":"tcp","size":64,"first":"ours","second":"libzmq","peer":"libzmq","unit":"msg/s","all_ours":[5e5],"all_theirs":[4e5],"ratios":[1.25]},
			{"case":"req-rep/tcp/64/libzmq-to-ours","pattern":"req-rep","transport":"tcp","size":64,"first":"libzmq","second":"ours","peer":"libzmq","unit":"us","all_ours":[30],"all_theirs":[40],"ratios":[0.75]},
			{"case":"push-pull/tcp/64KiB","pattern":"push-pull","transport":"tcp","size":65536,"first":"ours","second":"ours","peer":"libzmq","unit":"msg/s","all_ours":[3e3],"all_theirs":[4e3],"ratios":[0.75]},
			{"case":"pub-sub/tcp/64/to-1000/topic","pattern":"pub-sub","transport":"tcp","size":64,"subscribers":1000,"topic":true,"first":"ours","second":"ours","peer":"libzmq","unit":"msg/s","all_ours":[12345678],"all_theirs":[1234567],"ratios":[1234.5]},
			{"case":"pub-sub/tcp/64/to-16","pattern":"pub-sub","transport":"tcp","size":64,"subscribers":16,"first":"ours","second":"ours","peer":"libzmq","unit":"msg/s","all_ours":[2e6],"all_theirs":[1e6],"ratios":[2]},
			{"case":"req-rep/tcp/64","pattern":"req-rep","transport":"tcp","size":64,"first":"ours","second":"ours","peer":"libzmq","unit":"us","all_ours":[10,12],"all_theirs":[60,70],"ratios":[0.17,0.18]},
			{"case":"push-pull/tcp/64/curve","pattern":"push-pull","transport":"tcp","size":64,"curve":true,"first":"ours","second":"ours","peer":"libzmq","error":"libzmq: CURVE"}]`,
		"sockets-libzmq-batch.json": `[{"case":"push-pull/tcp/64","pattern":"push-pull","transport":"tcp","size":64,"first":"ours","second":"ours","peer":"libzmq","batch":100,"unit":"msg/s","all_ours":[9e6],"all_theirs":[4e5],"ratios":[22.5]}]`,
		"kv-rate.json":              `{"cases":[{"system":"chp","mode":"rate","rates":[4e6,5e6]},{"system":"etcd","mode":"rate","rates":[1e4,2e4],"ratios":[400,250]},{"system":"nats","mode":"rate","error":"it is not installed","missing":true}]}`,
		"kv-latency.json":           `{"cases":[{"system":"chp","mode":"latency","offered":1000,"p50_us":[20],"p99_us":[40],"p99.9_us":[99]}]}`,
		"chp-bench.json":            `{"rounds":[{"chp":{"updates_per_second":4e6},"baseline":{"updates_per_second":8e6}},{"chp":{"updates_per_second":5e6},"data":{"updates_per_second":2e6},"baseline":{"updates_per_second":9e6}}]}`,
		"majordomo.json":            `[{"size":64,"workers":10,"broker":"clustermap","rates":[6e5,8e5],"processor_us":[1.5,2.5]},{"size":64,"workers":10,"broker":"libzmq","rates":[1e5,2e5],"processor_us":[9]}]`,
		"go-map.txt": "goos: linux\npkg: clustermap/bench/peers\n" +
			"BenchmarkMap/keys=10000/peer=xsync.Map/op=get/goroutines=1-2 100 75 ns/op 50 ours-ns 25 peer-ns 0.5 ratio\n" +
			"BenchmarkMap/keys=10000/peer=xsync.Map/op=get/goroutines=1-2 100 75 ns/op 52 ours-ns 26 peer-ns 0.5 ratio\n" +
			"BenchmarkMap/keys=1000000/peer=xsync.Map/op=set/goroutines=2-2 100 75 ns/op 50 ours-ns 25 peer-ns 0.5 ratio\n" +
			"BenchmarkMap/keys=1000000/peer=xsync.Map/op=range/goroutines=1-2 1 75 ns/op 80 ours-B/key 120 peer-B/key 1e6 ours-ns 2e6 peer-ns 2 ratio\nPASS\n",
		"go-bench.txt": "pkg: clustermap/bench\n" +
			"BenchmarkRoundTrip/pair=req-rep/transport=tcp/size=64/window=1-2 10 75 ns/op 20000 p50-ns 25000 p90-ns 30000 p99-ns 35000 p99.9-ns 90000 max-ns 50000 msgs/s\n" +
			"BenchmarkRoundTrip/pair=dealer-router/transport=inproc/size=65536/window=100-2 10 75 ns/op 20000 p50-ns 25000 p90-ns 30000 p99-ns 35000 p99.9-ns 90000 max-ns 50000 msgs/s\n" +
			"BenchmarkFanOut/replicas=64-2 1 3e7 bare/s 4e7 deliveries/s 1.5 ratio\n" +
			"BenchmarkSubtrees/updates=next/subscriptions=10000-2 1 0 ns/op 25 bare-ns/update 173 ns/update 5e6 updates/s\n" +
			"BenchmarkKeys-2 5 0 ns/op 5e6 few-msgs/s 250000 few-p99.9-ns 3e6 many-msgs/s 300000 many-p99.9-ns 1.2 p99.9-many/few 1e6 many-keys 0.6 rate-many/few\n" +
			"BenchmarkJoin-2 1 0 ns/op 129 RSS-B/key 0.5 busy-s 0.2 idle-s 1.47 overwritten/loaded 0.51 updates-busy/normal\n" +
			"BenchmarkJoin-2 1 0 ns/op 131 RSS-B/key 0.5 busy-s 0.2 idle-s 1.47 overwritten/loaded 0.51 updates-busy/normal\n" +
			"BenchmarkFailover/settings=default-2 20 1900 min-ms 2000 p50-ms 2100 p90-ms 2300 max-ms\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestCharts: every plot is drawn, is well-formed XML, and has a white background, a
// title and axes with their units.
func TestCharts(t *testing.T) {
	t.Parallel()
	folder := example(t)
	d, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := d.WriteCharts(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	const want = "sockets-throughput-tcp.svg sockets-throughput-ipc-curve.svg sockets-latency-tcp.svg sockets-subscribers.svg map-get-1.svg map-set-2.svg map-memory.svg " +
		"map-updates.svg systems-rate.svg systems-latency.svg latency.svg failover.svg"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("plots are\n%s, want\n%s", got, want)
	}
	for i, c := range d.charts() {
		if c.File == "sockets-throughput-tcp.svg" {
			var lines []string
			for _, l := range c.Lines {
				lines = append(lines, l.Name)
			}
			if !slices.Equal(lines, socketOrder) {
				t.Errorf("the lines of %s are %q, want %q", c.File, lines, socketOrder)
			}
		}
		text, err := os.ReadFile(paths[i])
		if err != nil {
			t.Fatal(err)
		}
		for x := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := x.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", c.File, err)
			}
		}
		if !strings.Contains(string(text), "#FFFFFF") {
			t.Errorf("%s has no white background", c.File)
		}
		for _, part := range append(strings.Split(c.Title, "\n"), c.X) {
			if !strings.Contains(string(text), ">"+part+"<") {
				t.Errorf("%s does not say %q", c.File, part)
			}
		}
		if len(c.Lines) > 0 && c.Y == "" {
			t.Errorf("%s has an axis without a label", c.File)
		}
	}
}

// TestPrint: the table has all figures, and no line is wider than 80 columns.
func TestPrint(t *testing.T) {
	t.Parallel()
	d, err := Load(example(t))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := d.Print(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > tableWidth {
			t.Errorf("too wide: %s", line)
		}
	}
	for _, want := range []string{
		`(?m)^darwin/arm64, 8 cores, go1\.26\n  2026-01-03T03:04:05Z  go-bench  incomplete\n` +
			`linux/amd64, 2 cores, go1\.26, A processor\n  2026-01-01T03:04:05Z  go-map  quick: .*\n  2026-01-02T03:04:05Z  kv-rate\n`,
		`(?m)^Sockets: Send, RecvBatch beside libzmq's zmq_send, zmq_recv\n.*\n(.+\n)*push-pull/tcp/64 +2 M/s +500 k/s +4 +1\.67–7\.5\n(.+\n)*pub-sub/tcp/64/to-1000/topic +12\.3 M/s`,
		`(?m)^Sockets: SendBatch, RecvBatch beside libzmq's .*\n.*\n(.+\n)*push-pull/tcp/64 +9 M/s +400 k/s +22\.5`,
		`(?m)^Sockets: Send, Recv beside libzmq's .*\n.*\n(.+\n)*push-pull/tcp/64 +800 k/s +600 k/s +1\.33\b.*\n(.+\n)*req-rep/tcp/64 +11 µs +65 µs`,
		`(?m)^Sockets: Send, zmq_recv beside libzmq's .*\n.*\npush-pull/tcp/64/ours-to-libzmq +500 k/s`,
		`(?m)^Sockets: zmq_send, zmq_recv / Send, Recv beside libzmq's .*\n.*\nreq-rep/tcp/64/libzmq-to-ours +30 µs`,
		`get, 10 k keys, goroutines: 1 +xsync\.Map +51 +25\.5 +0\.5 `,
		`bytes for each key, 1 M keys +xsync\.Map +80 +120 +1\.5`,
		`bare TCP and hash tables +8\.5 M/s +8 M–9 M +1\.9 `,
		`one server with a log on disk +2 M/s`,
		`etcd +15 k/s +10 k–20 k +325 +250–400`,
		`chp +1 k/s +20 +40 +99`,
		`64 B, 10 +clustermap +700 k/s +600 k–800 k +2\n`,
		`64 B, 10 +libzmq +150 k/s +100 k–200 k +9 +5 +4–6`,
		`64 +40 M/s +30 M/s +1\.5`,
		`REQ and REP, tcp +20 +25 +30 +35 +90`,
		`RoundTrip dealer-router, inproc, 64 KiB, window: 100 +50 k`,
		`10000 +each in turn +173 +173–173 +25`,
		`updates +1 M +5 M/s +3 M/s +0\.6`,
		`p99\.9 of the time to a replica +1 M +250 µs +300 µs +1\.2`,
		`resident bytes for each key +130 +129–131`,
		`default +1\.9 k +2 k +2\.1 k +2\.3 k`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("nothing matches %s in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "tcp/64/curve") || strings.Contains(out.String(), "nats") {
		t.Error("what has no figures is shown")
	}
}

// TestMeasuringKeeps: a run that measures nothing, a quick one, and one that fails leave the
// results as they are.
func TestMeasuringKeeps(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	files := map[string]string{"origins.json": `{"kv-rate":{"date":"2026-01-02T03:04:05Z"}}`, "kv-rate.json": `{"cases":[]}`, "go-map.txt": "earlier"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, c := range map[string]struct {
		ctx context.Context
		m   Measuring
	}{
		"no match":    {t.Context(), Measuring{Only: regexp.MustCompile("kv-raet")}},
		"quick":       {t.Context(), Measuring{Only: regexp.MustCompile("kv"), Quick: true}},
		"interrupted": {ended, Measuring{Only: regexp.MustCompile("kv-rate")}},
	} {
		c.m.Folder, c.m.Rounds, c.m.Log = folder, 1, io.Discard
		if err := c.m.Run(c.ctx); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	// It prints FAIL, and fails.
	s := step{name: "go-map", args: []string{"test", "./absent"}}
	m := Measuring{Folder: folder, Log: io.Discard}
	if stored, err := m.measure(t.Context(), &s, t.TempDir()); err == nil || stored {
		t.Errorf("a measurement that fails: %v, %v", stored, err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "go-map.txt.incomplete")); err != nil || !strings.Contains(string(text), "FAIL") {
		t.Errorf("what it printed is %q, %v", text, err)
	}
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(got) != text {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

// TestNothing: a folder without results is refused.
func TestNothing(t *testing.T) {
	t.Parallel()
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("an empty folder was read")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "kv-rate.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(folder); err == nil {
		t.Error("half a file was read")
	}
}

func TestSI(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.5: "0.5", 0.123456: "0.123", 9.999: "10", 99.4: "99.4", 999: "999", 999.9: "1 k", 1234: "1.23 k", 4.7e6: "4.7 M", 100e3: "100 k", 2e9: "2 G",
	} {
		if got := si(v); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
}
