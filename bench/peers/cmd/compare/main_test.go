package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"clustermap/bench/peers/internal/results"
	"clustermap/internal/bench/worker"
)

// TestMain makes this binary a worker where it is started as one, like the
// command.
func TestMain(m *testing.M) {
	worker.Main(roles)
	os.Exit(m.Run())
}

func compareRows(t *testing.T, args ...string) []results.Sockets {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, log bytes.Buffer
	args = append([]string{"--json", "--rounds", "1", "--time", "10ms", "--warm", "5ms"}, args...)
	if err := run(ctx, args, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	var rows []results.Sockets
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Each case runs briefly, or names the feature that the library lacks.
func TestCases(t *testing.T) {
	rows := compareRows(t, "--cases", `/(64|1MiB)(/|$)`)
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		switch {
		case r.Error != "" && r.Unit == "":
			t.Logf("%s: %s", r.Case, r.Error)
		case r.Error != "" || r.Ours <= 0 || r.Theirs <= 0 || r.Ratio <= 0 || r.Min > r.Ratio || r.Ratio > r.Max || len(r.Ratios) != 1 ||
			len(r.AllOurs) != 1 || len(r.AllTheirs) != 1 || r.Size == 0 || r.Peer != string(libzmq):
			t.Errorf("%+v", r)
		}
	}
}

// The other libraries work by themselves; libzmq in every case, the others over tcp.
func TestPeers(t *testing.T) {
	for _, peer := range []library{libzmq, pebbe, goZeroMQ} {
		for _, probe := range tests(peer) {
			if probe.first != ours || probe.second != ours || probe.size != 64 ||
				peer != libzmq && (probe.transport != transTCP || probe.curve || probe.peers > 100) {
				continue
			}
			t.Run(string(peer)+"/"+probe.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				f, err := measure(ctx, &probe, peer, peer, manner{warm: 5 * time.Millisecond, time: 10 * time.Millisecond})
				if err != nil || f.Messages == 0 {
					t.Fatal(f, err)
				}
			})
		}
	}
}

// Our sender's other way.
func TestBatch(t *testing.T) {
	for _, r := range compareRows(t, "--batch", "50", "--cases", "^push-pull/tcp/64$") {
		if r.Error != "" || r.Ours <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	rows := []results.Sockets{
		{Case: "a", Pattern: "req-rep", Peer: "libzmq", Unit: "us", Ours: 1.25, Theirs: 2.5, Ratio: 0.5, Min: 0.25, Max: 0.75},
		{Case: "b", Pattern: "push-pull", Peer: "libzmq", Unit: "msg/s", Ours: 10, Theirs: 5, Ratio: 2, Min: 1, Max: 3},
		{Case: "c", Peer: "libzmq", Receive: "Recv", Error: "ours: CURVE"},
	}
	if err := table(&out, rows, libzmq); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`case +our calls +theirs +ours +libzmq +unit +ratio +\(min\.\.max\)`,
		`a +Send, Recv +zmq_send, zmq_recv +1\.2 +2\.5 +us +0\.50 +\(0\.25\.\.0\.75\)`,
		`b +Send, RecvBatch +zmq_send, zmq_recv +10 +5 +msg/s +2\.00 +\(1\.00\.\.3\.00\)`,
		`c +Send, Recv +zmq_send, zmq_recv +- +- +- +- +ours: CURVE`,
	} {
		if line := strings.Split(out.String(), "\n")[i]; !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("line %d is %q", i, line)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"--rounds", "0"}, {"--batch", "-1"}, {"--time", "-1s"}, {"--cases", "("}, {"--cases", "nothing like it"}, {"--peer", "ours"}, {"more"}} {
		if err := run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}
