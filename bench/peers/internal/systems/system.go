// Package systems has what commands share that give clustermap and other systems the same work: the
// workload, the figures, and clients of systems that more than one of them measures.
package systems

import (
	"errors"
	"fmt"
	"time"

	"clustermap/internal/bench/bare"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
)

// System is a pipeline and how much of the work it gets.
type System struct {
	pipeline.Pipeline
	// Share divides the updates, so that slow systems do not take all the time.
	Share int
	// PerKey, if not 0, bounds the measured updates of each key.
	PerKey int
	// Lanes, if above 1, is how many updates are under way in no order.
	Lanes int
	// Conflates says that a replica may miss values that others have replaced.
	Conflates bool
}

// Prefix is what keys begin with; a number follows.
const Prefix = "/bench/"

// ValueSize is the bytes of a value.
const ValueSize = 32

// Spec returns the system's share of the updates. Each key is set once before. A lane is a
// publisher with keys of its own, but all are in one process.
func (s *System) Spec(keys, updates int) workload.Spec {
	w := workload.Spec{
		Prefix: Prefix, Keys: keys, ValueSize: ValueSize, Warmup: keys, Each: true, Conflates: s.Conflates,
		Updates:    max(updates/max(s.Share, 1), min(updates, leastUpdates)),
		Publishers: min(max(s.Lanes, 1), keys),
	}
	if s.PerKey > 0 {
		w.Updates = min(w.Updates, keys*s.PerKey)
	}
	return w
}

// leastUpdates is the number of updates that no share goes below.
const leastUpdates = 10_000

// Figure is the result of one run of a pipeline.
type Figure struct {
	Rate float64 // updates that the slowest replica saw, a second
	Seen float64 // share of the updates that it saw
	Sent float64 // updates that the publisher sent, a second

	P50, P99, P999 time.Duration // of the worst replica
}

// FigureOf returns the figure of a run, or an error if anything in it was wrong.
func FigureOf(r *pipeline.Run, o *pipeline.Outcome) (f Figure, err error) {
	err = o.Fault
	expected := r.Spec.Expected()
	updates := float64(r.Spec.Updates)
	f.Sent = updates / o.Sent.Seconds()
	for i := range o.Reports {
		p := &o.Reports[i]
		err = errors.Join(err, p.Fault(r.Spec, expected))
		if rate := float64(p.Delivered) / time.Duration(p.Last-o.First).Seconds(); i == 0 || rate < f.Rate {
			f.Rate, f.Seen = rate, float64(p.Delivered)/updates
		}
		var latency workload.Histogram
		latency.Merge(p.Latency)
		at := func(share float64) time.Duration { return time.Duration(latency.Percentile(share)) }
		f.P50, f.P99, f.P999 = max(f.P50, at(0.5)), max(f.P99, at(0.99)), max(f.P999, at(0.999))
	}
	if len(o.Reports) != r.Replicas {
		err = errors.Join(err, fmt.Errorf("%d of %d replicas reported", len(o.Reports), r.Replicas))
	}
	return f, err
}

// Held is the map of a replica whose client has none.
type Held struct {
	*bare.Table
	*pipeline.Receiver
}

// NewHeld returns an empty map.
func NewHeld(p *link.Peer, r *pipeline.Receiver) Held {
	return Held{bare.NewTable(p.Spec.Keys), r}
}

// Apply stores an update and checks it.
func (h Held) Apply(key, value []byte) (more bool) {
	h.Put(key, value)
	return h.See(key, value)
}
