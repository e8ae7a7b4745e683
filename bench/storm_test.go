//go:build unix

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
)

var (
	stormClients  = flag.Int("storm.clients", 50, "replicas of BenchmarkStorm; each has two connections")
	stormIn       = flag.Int("storm.in", 4, "processes of the replicas of BenchmarkStorm")
	stormFailover = flag.Bool("storm.failover", true, "whether BenchmarkStorm kills the active server then")
	stormKeys     = flag.Int("storm.keys", 2000, "keys of BenchmarkStorm")
	stormProfile  = flag.String("storm.profile", "", "files for CPU profiles of those processes, whose numbers are added, until all replicas have joined")
	stormValue    = flag.Int("storm.value", 16, "bytes of a value of BenchmarkStorm")
	stormEvery    = flag.Duration("storm.every", 10*time.Millisecond, "wait between two updates that go on meanwhile")
)

// BenchmarkStorm has many replicas join the map of a pair at once, and kills the active
// server when they are there, so that all of them come to the other one. It measures the
// time until each has everything that the server had published when it began. A client
// goes on setting a key meanwhile. cpu is the time on processors, of the servers and of the
// replicas. In the end all replicas must have the same content as
// both servers. The servers and the client that sets are processes, and the replicas are in
// a few more. With 100,000 keys of 11 bytes and values of 32 each of them takes some 12 MB, and
// twice as much while it changes to another server.
//
//	go test -run '^$' -bench Storm -benchtime 1x ./bench -storm.clients 1000 -storm.keys 100000 -storm.value 32
func BenchmarkStorm(b *testing.B) {
	command := buildCommand(b)
	for b.Loop() {
		storm(b, command)
	}
	b.ReportMetric(0, "ns/op")
}

func storm(b *testing.B, command string) {
	pair := startPair(b, command)
	defer func() {
		for _, p := range pair.servers {
			p.kill()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	loader := pair.client(chp.ClientOptions{Subtrees: []string{setterKey}})
	value := make([]byte, *stormValue)
	for i := range *stormKeys {
		if err := loader.Set(ctx, fmt.Sprintf("/k/%08d", i), value); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := loader.SetSync(ctx, setterKey, []byte("0")); err != nil {
		b.Fatal(err)
	}
	active := pair.inSync()
	s := startSetterProcess(b, pair, *stormEvery)
	before := [2]int64{pair.servers[0].peakMemory(), pair.servers[1].peakMemory()}

	replicas := startCrowds(b, pair.endpoints(), *stormClients, *stormIn, *stormProfile)
	syncs := uint64(0)
	phase := func(name string, server int, begin func()) {
		b.Helper()
		rest := pair.status()[server]
		begun := time.Now()
		used := [2]time.Duration{pair.processor(), replicas.processor()}
		begin()
		var all arrived
		acks := s.count(func() {
			all = replicas.await(arrival{Server: pair.servers[server].endpoint, Keys: *stormKeys + 1, Sequence: rest.Sequence})
		})
		took := time.Since(begun)
		used = [2]time.Duration{pair.processor() - used[0], replicas.processor() - used[1]}
		st := pair.status()[server]
		sent, encoded := st.SnapshotBytes-rest.SnapshotBytes, st.EncodedBytes-rest.EncodedBytes
		peak := pair.servers[server].peakMemory()
		const mib = 1 << 20
		b.Logf("%s: %d replicas with %d keys after %v, cpu %v and %v; %d snapshots, %.1f MiB of them sent, %.1f MiB encoded; the server's memory was %.1f MiB before, and at most %.1f MiB, that of the replicas %.1f MiB; %d updates meanwhile, the longest wait for one was %v",
			name, *stormClients, *stormKeys+1, took.Round(time.Millisecond), used[0], used[1], all.Syncs-syncs, float64(sent)/mib, float64(encoded)/mib,
			float64(before[server])/mib, float64(peak)/mib, float64(replicas.memory("VmHWM"))/mib, acks.n, acks.pause.Round(time.Millisecond))
		syncs = all.Syncs
		b.ReportMetric(took.Seconds(), name+"-s")
		b.ReportMetric(float64(sent)/float64(encoded), name+"-sent/encoded")
		b.ReportMetric(float64(peak)/mib, name+"-peak-MiB")
		b.ReportMetric(float64(acks.n)/took.Seconds(), name+"-updates/s")
		b.ReportMetric(acks.pause.Seconds()*1000, name+"-wait-ms")
	}
	phase("join", active, func() {})
	if *stormFailover {
		phase("failover", 1-active, pair.servers[active].kill)
		pair.servers[active].start()
		drain(s, pair.inSync)
		active = 1 - active
	}
	s.end(pair)
	sequence := pair.status()[active].Sequence
	want := fingerprint(pair.client(chp.ClientOptions{}))
	if got := replicas.await(arrival{Sequence: sequence, Content: true}).Content; len(got) != 1 || got[want] != *stormClients {
		b.Fatalf("the replicas have %v, want %v", got, want)
	}
}

// acks are updates that came back.
type acks struct {
	n     int
	pause time.Duration // the longest from one to the next
}

// count calls f, and counts the updates that come back meanwhile.
func (s *setter) count(f func()) acks {
	var all acks
	end := make(chan struct{})
	last := time.Now()
	var counting sync.WaitGroup
	counting.Go(func() {
		for {
			select {
			case a := <-s.acks:
				all.n++
				all.pause = max(all.pause, a.at.Sub(last))
				last = a.at
			case <-end:
				all.pause = max(all.pause, time.Since(last))
				return
			}
		}
	})
	func() {
		defer counting.Wait()
		defer close(end)
		f()
	}()
	return all
}

// peakMemory returns the most memory that the process has had resident, in bytes, and
// 0 where the system does not tell.
func (p *process) peakMemory() int64 { return p.memory("VmHWM") }

// memory returns a line of the status of the process, in bytes.
func (p *process) memory(line string) int64 { return memoryOf(p.cmd.Process.Pid, line) }

func memoryOf(pid int, line string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0
	}
	return kib << 10
}

// processorOf returns how long a process ran on processors so far, in steps of 10 ms.
func processorOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third one on
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11]) // a process that has ended has nothing there
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
