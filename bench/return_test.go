//go:build unix

package bench

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/sockets"
)

var (
	returnClients = flag.Int("return.clients", 50, "replicas of BenchmarkReturn; each has two connections")
	returnIn      = flag.Int("return.in", 4, "processes of the replicas of BenchmarkReturn")
	returnKeys    = flag.Int("return.keys", 2000, "keys of BenchmarkReturn, of 11 bytes with values of 32")
	returnAway    = flag.Duration("return.away", 2*time.Second, "how long the server is away")
	returnRetain  = flag.String("return.retain", "64MiB", "what the server remembers of the last updates")
)

// BenchmarkReturn has many replicas follow a server with a log on disk, kills that, and starts it
// again after a while. It measures the time from the moment when the server answers until all
// replicas are ACTIVE and have what it had then, and counts the snapshots that they took for
// that. With 100,000 keys each replica takes some 12 MB.
//
//	go test -run '^$' -bench '^BenchmarkReturn$' -benchtime 1x ./bench -return.clients 1000 -return.keys 100000
func BenchmarkReturn(b *testing.B) {
	command := buildCommand(b)
	for b.Loop() {
		returnOnce(b, command)
	}
	b.ReportMetric(0, "ns/op")
}

func returnOnce(b *testing.B, command string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	host := loopback.Own()
	server := &process{
		tb: b, args: []string{command, "serve", "--host", host, "--data", filepath.Join(b.TempDir(), "map"), "--retain", *returnRetain},
		endpoint: "tcp://" + host + ":5556",
	}
	answers := func() chp.Status {
		for {
			st, err := chp.ServerStatus(ctx, server.endpoint, sockets.Security{})
			if err == nil {
				return st
			}
			if ctx.Err() != nil {
				b.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	server.start()
	defer func() { server.kill() }()
	answers()
	loader, err := chp.NewClient(chp.ClientOptions{Servers: []string{server.endpoint}, Subtrees: []string{"/end"}})
	if err != nil {
		b.Fatal(err)
	}
	defer loader.Close()
	for i := range *returnKeys {
		if err := loader.Set(ctx, fmt.Sprintf("/k/%08d", i), make([]byte, 32)); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := loader.SetSync(ctx, "/end", []byte("0")); err != nil {
		b.Fatal(err)
	}
	replicas := startCrowds(b, []string{server.endpoint}, *returnClients, *returnIn, "")
	joining := time.Now()
	before := replicas.await(arrival{Keys: *returnKeys + 1, Sequence: answers().Sequence})
	joined := time.Since(joining)

	server.kill()
	time.Sleep(*returnAway)
	server.start()
	st := answers()
	begun := time.Now()
	used := [2]time.Duration{processorOf(server.cmd.Process.Pid), replicas.processor()}
	after := replicas.await(arrival{Keys: *returnKeys + 1, Sequence: st.Sequence})
	took := time.Since(begun)
	st = answers()
	b.Logf("%d replicas with %d keys had joined after %v; back after %v, with %d snapshots, resumed %d times; cpu %v of the server and %v of the replicas; %d bytes of snapshots, the server's memory is %d MiB",
		*returnClients, *returnKeys+1, joined.Round(time.Millisecond), took.Round(time.Millisecond), after.Syncs-before.Syncs, after.Resumed-before.Resumed,
		processorOf(server.cmd.Process.Pid)-used[0], replicas.processor()-used[1], st.SnapshotBytes, st.MemoryBytes>>20)
	if after.Resumed-before.Resumed < uint64(*returnClients) && *returnRetain != "0" {
		b.Errorf("only %d replicas have come back without a snapshot", after.Resumed-before.Resumed)
	}
	b.ReportMetric(took.Seconds(), "back-s")
	b.ReportMetric(float64(after.Syncs-before.Syncs), "snapshots")
}
