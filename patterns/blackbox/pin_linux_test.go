//go:build linux && !portable

package blackbox

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCores: with Cores, the threads of shards and workers run only on their cores.
func TestCores(t *testing.T) {
	t.Parallel()
	cores := AllowedCores()
	if len(cores) == 0 {
		t.Skip("the cores are not known")
	}
	for _, workers := range []int{0, 3} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			pub := publisher(t, anyPort)
			l := newLedger()
			var mu sync.Mutex
			on := map[int][]int{} // cores of each worker's thread
			b := open(t, Options{
				Connect: []string{pub.LastEndpoint()}, Shards: SpreadAll(2), Workers: workers, Cores: cores,
				Handle: func(b *Batch) {
					var set unix.CPUSet
					if err := unix.SchedGetaffinity(0, &set); err != nil {
						t.Error(err)
					}
					var found []int
					for c := range 1024 {
						if set.IsSet(c) {
							found = append(found, c)
						}
					}
					mu.Lock()
					on[b.Worker()] = found
					mu.Unlock()
					l.handle(b)
				},
			})
			topics := someTopics(300)
			flood(t, pub, topics, 0, 2)
			l.wait(t, 600)
			must(t, b.Close())
			l.whole(t, topics, 2)
			n := 0
			for i, s := range b.Stats().Shards {
				if want := cores[i%len(cores)]; s.Core != want {
					t.Errorf("shard %d is on core %d, want %d", i, s.Core, want)
				}
				for _, w := range s.Workers {
					if got := on[n]; !slices.Equal(got, []int{w.Core}) || !slices.Contains(cores, w.Core) {
						t.Errorf("worker %d runs on %v, and says %d", n, got, w.Core)
					}
					n++
				}
			}
		})
	}
}

// TestAssign: shards get the first cores and workers the others.
func TestAssign(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		workers, cores int
		want           string
	}{
		{0, 0, "[-1 -1 -1] []"},
		{0, 2, "[0 1 0] []"},
		{0, 4, "[0 1 2] []"},
		{1, 5, "[0 1 2] [3 4 3]"},
		{2, 3, "[0 1 2] [0 1 2 0 1 2]"},
		{2, 4, "[0 1 2] [3 3 3 3 3 3]"},
	} {
		b := &Box{}
		for range 3 {
			s := &shard{inline: c.workers == 0}
			s.thread.init()
			for range max(c.workers, 1) {
				w := &worker{shard: s}
				w.thread.init()
				s.workers = append(s.workers, w)
				b.workers = append(b.workers, w)
			}
			b.shards = append(b.shards, s)
		}
		var cores []int
		for i := range c.cores {
			cores = append(cores, i)
		}
		b.assign(cores)
		shards, workers := []int{}, []int{}
		for _, s := range b.shards {
			shards = append(shards, s.thread.wanted)
			for _, w := range s.workers {
				if !s.inline {
					workers = append(workers, w.thread.wanted)
				}
			}
		}
		if got := fmt.Sprint(shards, workers); got != c.want {
			t.Errorf("%d workers on %d cores: %s, want %s", c.workers, c.cores, got, c.want)
		}
	}
}

// TestAllowedCores: a thread that is bound to one core gets all cores of the process.
func TestAllowedCores(t *testing.T) {
	t.Parallel()
	want := AllowedCores()
	done := make(chan []int)
	go func() { // its thread ends with it
		runtime.LockOSThread()
		if len(want) > 0 && !bindThread(want[0]) {
			t.Error("cannot be bound")
		}
		done <- AllowedCores()
	}()
	if got := <-done; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
