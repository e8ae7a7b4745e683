package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A loss is how the replicas of a node that was lost came back.
type loss struct {
	Half, All time.Duration // of them were back, after the node was lost
	Busiest   int           // replicas that came to one node
}

// simulate loses a node. Each of its replicas notices that at a time of its own, and goes to another node: at random if
// spread is true, as with an order of servers of its own, else all to the same one, as with the same order for all. There it
// needs work of a processor, and then its bytes of the network; each node serves who came first.
func (f fleet) simulate(p plan, bytes float64, work time.Duration, spread bool, seed uint64) loss {
	rng := rand.New(rand.NewPCG(seed, seed))
	type node struct {
		cores    []float64 // when each is free, in seconds
		network  float64   // when it is free
		replicas int
	}
	nodes := make([]node, p.Nodes-1)
	for i := range nodes {
		nodes[i].cores = make([]float64, max(1, int(f.Cores)))
	}
	processors, network := f.spare()
	service := work.Seconds() / (processors / float64(len(nodes[0].cores)))

	// The last thing a replica heard was an update or a heartbeat.
	silence := f.Beat.Seconds()
	if f.Updates > 0 {
		silence = min(silence, 1/f.Updates)
	}
	noticed := make([]float64, p.Each)
	for i := range noticed {
		noticed[i] = f.Detect.Seconds() - silence*rng.Float64()
	}
	slices.Sort(noticed)

	back := make([]float64, 0, len(noticed))
	var l loss
	for _, at := range noticed {
		n := &nodes[0]
		if spread {
			n = &nodes[rng.IntN(len(nodes))]
		}
		n.replicas++
		l.Busiest = max(l.Busiest, n.replicas)
		core := 0
		for i, free := range n.cores {
			if free < n.cores[core] {
				core = i
			}
		}
		n.cores[core] = max(at, n.cores[core]) + service
		n.network = max(n.cores[core], n.network) + bytes/network
		back = append(back, n.network)
	}
	slices.Sort(back)
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	l.Half, l.All = seconds(back[len(back)/2]), seconds(back[len(back)-1])
	return l
}
