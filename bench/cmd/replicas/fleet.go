package main

import (
	"math"
	"time"
)

// A fleet is what is asked for: many replicas of one map, and the nodes that serve them. Sizes are in bytes.
type fleet struct {
	Replicas    int
	Updates     float64       // a second
	Update      float64       // size of an update on the wire
	Map         float64       // size of the map on the wire, as a snapshot
	Delay       time.Duration // in which an update is to reach all replicas
	Detect      time.Duration // after which a replica gives up a node that is silent (ClientOptions.HeartbeatTimeout)
	Beat        time.Duration // between heartbeats (ServerOptions.HeartbeatInterval)
	Cores       float64       // of a node
	Network     float64       // of a node, a second
	Connections int           // replicas of a node at most (chp serve --max-clients)
	Load        float64       // part of a node's processors and network that the updates may take
}

// costs are a node's processor time. docs/PERFORMANCE.md has the measurements: half of what both sides took.
type costs struct {
	Write    time.Duration // one write to a replica, however many updates it has
	Delivery time.Duration // one update to a replica
	Resume   time.Duration // a replica that comes back, without the updates it gets
	Snapshot time.Duration // a megabyte of a snapshot
}

// A plan is what the fleet needs.
type plan struct {
	ByConnections, ByNetwork, ByProcessors int // replicas a node, by each limit alone

	Nodes   int     // with one to spare
	Each    int     // replicas a node, while all are there
	Egress  float64 // bytes a second of a node to its replicas
	Log     float64 // bytes a second of the leader to the other nodes
	Tail    float64 // bytes of the updates that a replica missed when its node was lost
	Resume  time.Duration
	Restart time.Duration // as Resume, but each replica takes a snapshot: the updates are no longer there
}

// plan computes what the fleet needs.
//
// A node writes to its replicas in turn. In a round of t seconds each of its c replicas gets one write, with the t*u
// updates that came in the round before, so t*cores = c*(write + t*u*delivery). An update is sent within two rounds.
func (f fleet) plan(k costs) plan {
	var p plan
	round := f.Delay.Seconds() / 2
	p.ByConnections = f.Connections
	p.ByNetwork = whole(f.Load * f.Network / (f.Updates * f.Update))
	p.ByProcessors = whole(f.Load * f.Cores * round / (k.Write.Seconds() + round*f.Updates*k.Delivery.Seconds()))
	most := max(1, min(p.ByConnections, p.ByNetwork, p.ByProcessors))
	p.Nodes = max(3, (f.Replicas+most-1)/most+1)
	p.Each = (f.Replicas + p.Nodes - 1) / p.Nodes
	p.Egress = float64(p.Each) * f.Updates * f.Update
	p.Log = float64(p.Nodes-1) * f.Updates * f.Update
	p.Tail = f.Updates * f.Update * f.Detect.Seconds()
	p.Resume = f.Detect + f.most(p, p.Tail, k.resume(p.Tail))
	p.Restart = f.Detect + f.most(p, f.Map, k.snapshot(f))
	return p
}

// whole is x as a number of replicas; without updates there is no limit.
func whole(x float64) int { return int(min(x, math.MaxInt32)) }

// resume is the processor time of a replica that gets what it missed.
func (k costs) resume(tail float64) time.Duration {
	return k.Resume + k.bytes(tail)
}

// snapshot is that of a replica that gets the map.
func (k costs) snapshot(f fleet) time.Duration {
	return k.Resume + k.bytes(f.Map)
}

// bytes is the processor time for so many bytes.
func (k costs) bytes(n float64) time.Duration { return time.Duration(float64(k.Snapshot) * n / 1e6) }

// most is how long the nodes that are left are busy with the replicas of the one that is lost, if these are spread evenly: with
// the processors or the network, whichever takes longer. The updates go on meanwhile.
func (f fleet) most(p plan, bytes float64, work time.Duration) time.Duration {
	each := math.Ceil(float64(p.Each) / float64(p.Nodes-1))
	processors, network := f.spare()
	return time.Duration(max(each*work.Seconds()/processors, each*bytes/network) * float64(time.Second))
}

// spare returns the processors and the bytes a second of a node that updates leave.
func (f fleet) spare() (processors, network float64) {
	return f.Cores * (1 - f.Load), f.Network * (1 - f.Load)
}
