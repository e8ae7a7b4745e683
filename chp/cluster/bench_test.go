package cluster

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"clustermap/chp/commit"
)

// timed is an owner that times its own proposals.
type timed struct {
	lister
	begun sync.Map // value to time
	took  []time.Duration
	done  chan struct{}
}

func (o *timed) Committed(all []Committed) {
	now := time.Now()
	for _, e := range all {
		if !e.Own {
			continue
		}
		if at, ok := o.begun.LoadAndDelete(binary.BigEndian.Uint64(e.Records)); ok {
			o.took = append(o.took, now.Sub(at.(time.Time)))
			o.done <- struct{}{}
		}
	}
}

// BenchmarkCluster measures three nodes in one process, over TCP, with a flush of each disk: how much
// a proposer with so many entries under way gets committed, and how long an entry takes.
func BenchmarkCluster(b *testing.B) {
	for _, size := range []int{64 << 10, 128 << 10, 100} {
		for _, ahead := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("size=%d/ahead=%d", size, ahead), func(b *testing.B) { benchmark(b, 3, size, ahead) })
		}
	}
}

// BenchmarkAlone measures a cluster of one node.
func BenchmarkAlone(b *testing.B) {
	for _, ahead := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("size=%d/ahead=%d", 64<<10, ahead), func(b *testing.B) { benchmark(b, 1, 64<<10, ahead) })
	}
}

func benchmark(b *testing.B, nodes, size, ahead int) {
	all := newCluster(b, nodes, 0)
	n := leader(b, all)
	o := &timed{done: make(chan struct{}, 1<<16)}
	n.mu.Lock()
	n.applier.owner = o
	n.mu.Unlock()
	term := n.Status().Term
	records := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	under := 0
	for i := range b.N {
		for under >= ahead {
			<-o.done
			under--
		}
		binary.BigEndian.PutUint64(records, uint64(i+1))
		o.begun.Store(uint64(i+1), time.Now())
		if _, err := n.Propose(term, &commit.Entry{Count: 1, Records: records}); err != nil {
			b.Fatal(err)
		}
		under++
	}
	for ; under > 0; under-- {
		<-o.done
	}
	b.StopTimer()
	slices.Sort(o.took)
	b.ReportMetric(float64(o.took[len(o.took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(o.took[len(o.took)*99/100].Microseconds()), "p99-µs")
	for _, n := range all {
		n.Close()
	}
}
