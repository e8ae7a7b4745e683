package main

import (
	"clustermap/internal/bench/bare"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/ours"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
)

// system is a pipeline and how much of the work it gets.
type system struct {
	pipeline.Pipeline
	// share divides --updates, so that slow systems do not take all the time.
	share int
	// perKey, if not 0, bounds the measured updates of each key.
	perKey int
	// lanes, if above 1, is how many updates are under way in no order.
	lanes int
	// conflates says that a replica may miss values that others have replaced.
	conflates bool
}

var (
	// chpSystem is our own server and client, through their public API.
	chpSystem = system{Pipeline: ours.Pipeline}
	// bareSystem is the least that the work takes.
	bareSystem = system{Pipeline: bare.Pipeline}
)

// systems lists all of them. The first is ours.
var systems = []*system{&chpSystem, &bareSystem, &cloneSystem, &guideSystem, &redisSystem, &trackingSystem, &natsSystem, &natsKeysSystem, &jetstreamSystem, &etcdSystem}

func systemOf(name string) *system {
	for _, s := range systems {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// The keys are "/bench/" and a number.
const prefix = "/bench/"

// valueSize is the bytes of a value.
const valueSize = 32

// spec returns the system's share of the updates. Each key is set once before. A lane is a
// publisher with keys of its own, but all are in one process.
func (s *system) spec(keys, updates int) workload.Spec {
	w := workload.Spec{
		Prefix: prefix, Keys: keys, ValueSize: valueSize, Warmup: keys, Each: true, Conflates: s.conflates,
		Updates:    max(updates/max(s.share, 1), min(updates, leastUpdates)),
		Publishers: min(max(s.lanes, 1), keys),
	}
	if s.perKey > 0 {
		w.Updates = min(w.Updates, keys*s.perKey)
	}
	return w
}

// leastUpdates is the number of updates that no share goes below.
const leastUpdates = 10_000

// loopback is an address of this machine alone, with a port that the system chooses.
const loopback = "127.0.0.1:0"

// held is the map of a replica whose client has none.
type held struct {
	*bare.Table
	*pipeline.Receiver
}

func newHeld(p *link.Peer, r *pipeline.Receiver) held {
	return held{bare.NewTable(p.Spec.Keys), r}
}

// apply stores an update and checks it.
func (h held) apply(key, value []byte) (more bool) {
	h.Put(key, value)
	return h.See(key, value)
}
