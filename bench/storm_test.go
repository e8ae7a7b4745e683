//go:build unix

package bench

import (
	"context"
	"flag"
	"fmt"
	"hash/maphash"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

var (
	stormClients = flag.Int("storm.clients", 50, "replicas of BenchmarkStorm; each has two connections")
	stormKeys    = flag.Int("storm.keys", 2000, "keys of BenchmarkStorm")
	stormValue   = flag.Int("storm.value", 16, "bytes of a value of BenchmarkStorm")
	stormEvery   = flag.Duration("storm.every", 10*time.Millisecond, "wait between two updates that go on meanwhile")
)

// BenchmarkStorm has many replicas join the map of a pair at once, and kills the active
// server when they are there, so that all of them come to the other one. It measures the
// time until each has everything that the server had published when it began. A client
// goes on setting a key meanwhile. In the end all replicas must have the same content as
// both servers. The servers and the client that sets are processes; the replicas are in
// this one. With 100,000 keys each of them takes some 10 MB, and up to twice as much
// while it takes a snapshot.
//
//	go test -run '^$' -bench Storm -benchtime 1x ./bench -storm.clients 1000 -storm.keys 100000
func BenchmarkStorm(b *testing.B) {
	command := buildCommand(b)
	for b.Loop() {
		storm(b, command)
	}
	b.ReportMetric(0, "ns/op")
}

func storm(b *testing.B, command string) {
	// The replicas' garbage would take as much memory as they do. The servers are other
	// processes, with their own setting.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
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

	replicas := make([]*chp.Client, *stormClients)
	defer closeAll(b, replicas)
	phase := func(name string, server int, begin func()) {
		b.Helper()
		rest := pair.status()[server]
		begun := time.Now()
		begin()
		acks := s.count(func() {
			for i, r := range replicas {
				testenv.Eventually(b, fmt.Sprintf("%s: replica %d has the map", name, i), func() bool {
					return r.State() == chp.StateActive && r.Server() == pair.servers[server].endpoint && r.Len() == *stormKeys+1 && r.Sequence() >= rest.Sequence
				})
			}
		})
		took := time.Since(begun)
		st := pair.status()[server]
		sent, encoded := st.SnapshotBytes-rest.SnapshotBytes, st.EncodedBytes-rest.EncodedBytes
		peak := pair.servers[server].peakMemory()
		const mib = 1 << 20
		b.Logf("%s: %d replicas with %d keys after %v; %.1f MiB of snapshots sent, %.1f MiB encoded; the server's memory was %.1f MiB before, and at most %.1f MiB; %d updates meanwhile, the longest wait for one was %v",
			name, len(replicas), *stormKeys+1, took.Round(time.Millisecond), float64(sent)/mib, float64(encoded)/mib,
			float64(before[server])/mib, float64(peak)/mib, acks.n, acks.pause.Round(time.Millisecond))
		b.ReportMetric(took.Seconds(), name+"-s")
		b.ReportMetric(float64(sent)/float64(encoded), name+"-sent/encoded")
		b.ReportMetric(float64(peak)/mib, name+"-peak-MiB")
		b.ReportMetric(float64(acks.n)/took.Seconds(), name+"-updates/s")
		b.ReportMetric(acks.pause.Seconds()*1000, name+"-wait-ms")
	}
	phase("join", active, func() {
		for i := range replicas {
			r, err := chp.NewClient(chp.ClientOptions{Servers: pair.endpoints()})
			if err != nil {
				b.Fatal(err)
			}
			replicas[i] = r
		}
	})
	phase("failover", 1-active, pair.servers[active].kill)
	pair.servers[active].start()
	drain(s, pair.inSync)
	s.end(pair)
	sequence := pair.status()[1-active].Sequence
	want := fingerprint(pair.client(chp.ClientOptions{}))
	for i, r := range replicas {
		testenv.Eventually(b, fmt.Sprintf("replica %d is at %d", i, sequence), func() bool { return r.Sequence() >= sequence })
		if got := fingerprint(r); got != want {
			b.Fatalf("replica %d differs: %+v, want %+v", i, got, want)
		}
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

// content is a digest of the content of a replica.
type content struct {
	keys int
	sum  uint64 // of a hash of each record
}

var contentSeed = maphash.MakeSeed()

func fingerprint(c *chp.Client) (f content) {
	c.Range(func(key, value []byte) bool {
		f.keys++
		f.sum += maphash.Bytes(contentSeed, key) ^ 31*maphash.Bytes(contentSeed, value)
		return true
	})
	return f
}

// closeAll closes the replicas, side by side: each may have to wait for a moment.
func closeAll(b *testing.B, replicas []*chp.Client) {
	var closing sync.WaitGroup
	for _, r := range replicas {
		if r != nil {
			closing.Go(func() {
				if err := r.Close(); err != nil {
					b.Error(err)
				}
			})
		}
	}
	closing.Wait()
}

// peakMemory returns the most memory that the process has had resident, in bytes, and
// 0 where the system does not tell.
func (p *process) peakMemory() int64 { return p.memory("VmHWM") }

// memory returns a line of the status of the process, in bytes.
func (p *process) memory(line string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
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
