//go:build unix

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/bench/worker"
)

// crowd is the task of a process that is many replicas. They begin to join when it is told
// what to wait for.
type crowd struct {
	Servers  []string
	Replicas int
	Profile  string // file for a CPU profile until all have joined, if any
}

// arrival is what the process waits for when it is told: that each replica follows a server,
// and has so many keys and everything up to a sequence.
type arrival struct {
	Server   string // any if empty
	Keys     int    // any if 0
	Sequence int64
	Content  bool // say what they have
}

func (to *arrival) reached(r *chp.Client) bool {
	return r.State() == chp.StateActive && (to.Server == "" || r.Server() == to.Server) && (to.Keys == 0 || r.Len() == to.Keys) && r.Sequence() >= to.Sequence
}

// arrived is what the process says then.
type arrived struct {
	Syncs   uint64          // snapshots that its replicas have taken since they began
	Resumed uint64          // times that they came back without one
	Content map[content]int // what they have, and how many of them
}

// content is a digest of the content of a replica.
type content struct {
	Keys int
	Sum  uint64 // of a checksum of each record
}

func (c content) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d %d", c.Keys, c.Sum), nil }

func (c *content) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d %d", &c.Keys, &c.Sum)
	return err
}

func fingerprint(c *chp.Client) (f content) {
	table := crc32.MakeTable(crc32.Castagnoli)
	c.Range(func(key, value []byte) bool {
		f.Keys++
		f.Sum += uint64(crc32.Checksum(key, table))<<32 | uint64(crc32.Checksum(value, table))
		return true
	})
	return f
}

// runCrowd is the work of such a process.
func runCrowd(c crowd, say func(any)) error {
	stop, err := worker.Profile(c.Profile)
	if err != nil {
		return err
	}
	var replicas []*chp.Client
	for {
		var to arrival
		if text, ok := worker.Hear(); !ok {
			return nil
		} else if err := json.Unmarshal([]byte(text), &to); err != nil {
			return err
		}
		begun := time.Now()
		for len(replicas) < c.Replicas {
			r, err := chp.NewClient(chp.ClientOptions{Servers: c.Servers})
			if err != nil {
				return err
			}
			replicas = append(replicas, r)
		}
		all := arrived{Content: map[content]int{}}
		for _, r := range replicas {
			for !to.reached(r) {
				if time.Since(begun) > 3*time.Minute {
					return fmt.Errorf("a replica is %v, of %q, with %d keys up to %d, not %+v", r.State(), r.Server(), r.Len(), r.Sequence(), to)
				}
				time.Sleep(time.Millisecond)
			}
			stats := r.Stats()
			all.Syncs, all.Resumed = all.Syncs+stats.Syncs, all.Resumed+stats.Resumed
			if to.Content {
				all.Content[fingerprint(r)]++
			}
		}
		say(all)
		if err := stop(); err != nil {
			return err
		}
		stop = func() error { return nil }
		// When they change to another server, the old maps would be garbage of as much memory
		// as the new ones.
		debug.SetGCPercent(10)
	}
}

// crowds are replicas in a few processes.
type crowds struct {
	b   *testing.B
	all []*worker.Worker
}

// startCrowds starts processes with so many replicas of the servers, which end with b.
func startCrowds(b *testing.B, servers []string, replicas, processes int, profile string) crowds {
	b.Helper()
	c := crowds{b: b}
	for i := range processes {
		task := crowd{Servers: servers, Replicas: (replicas + i) / processes}
		if profile != "" {
			task.Profile = profile + "." + strconv.Itoa(i)
		}
		w, err := worker.Start(context.Background(), "crowd", task)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(w.Stop)
		c.all = append(c.all, w)
	}
	return c
}

// await waits until all replicas have arrived.
func (c crowds) await(to arrival) (sum arrived) {
	c.b.Helper()
	text, err := json.Marshal(to)
	if err != nil {
		c.b.Fatal(err)
	}
	for _, w := range c.all {
		if err := w.Tell(string(text)); err != nil {
			c.b.Fatal(err)
		}
	}
	sum.Content = map[content]int{}
	for _, w := range c.all {
		var one arrived
		if err := w.Next(&one); err != nil {
			c.b.Fatal(err)
		}
		sum.Syncs, sum.Resumed = sum.Syncs+one.Syncs, sum.Resumed+one.Resumed
		for f, n := range one.Content {
			sum.Content[f] += n
		}
	}
	return sum
}

// memory returns a line of the status of the processes, in bytes, all together.
func (c crowds) memory(line string) (sum int64) {
	for _, w := range c.all {
		sum += memoryOf(w.Pid(), line)
	}
	return sum
}

// processor returns how long the processes ran on processors so far.
func (c crowds) processor() (sum time.Duration) {
	for _, w := range c.all {
		sum += processorOf(w.Pid())
	}
	return sum
}
