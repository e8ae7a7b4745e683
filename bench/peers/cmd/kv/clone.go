package main

import (
	"context"

	"clustermap/bench/peers/internal/libzmq"
	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
)

// cloneSystem is a CHP server of the ZeroMQ Guide's design, model 5 of its Clone pattern,
// in C on libzmq: ROUTER for snapshots, PULL for updates, XPUB, and one thread beside
// libzmq's own. Server, publisher and replica are written for this comparison: updates go
// to C and come back many at a time, hash tables are in C, frames are passed on without
// copying, and the server takes up to 1,000 updates before it polls again. The bytes are those
// of chp. Queues hold 100,000 messages, and XPUB waits instead of dropping, so nothing is
// lost.
var cloneSystem = systems.System{Pipeline: pipeline.Pipeline{Name: "libzmq", Serve: serveClone, Publish: publishClone, Follow: followClone}, Share: 4}

func serveClone(p *link.Peer, ready func(...string)) error {
	failed := make(chan error, 1)
	go func() { failed <- libzmq.ServeClone(ready) }()
	select {
	case err := <-failed:
		return err
	case <-p.Context().Done():
		return nil // its thread ends with the process
	}
}

type clonePublisher struct{ *libzmq.ClonePublisher }

func publishClone(p *link.Peer) (pipeline.Publisher, error) {
	c, err := libzmq.NewClonePublisher(p.Servers)
	return clonePublisher{c}, err
}

func (p clonePublisher) Set(_ int, key string, value []byte) error {
	return p.ClonePublisher.Set(key, value)
}

func (p clonePublisher) Settle(context.Context) error { return nil } // nothing is answered

type cloneReplica struct {
	*libzmq.CloneReplica
	spec     workload.Spec
	receiver *pipeline.Receiver
}

func followClone(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := libzmq.JoinClone(p.Context(), p.Servers)
	return cloneReplica{c, p.Spec, r}, err
}

func (r cloneReplica) Run(ctx context.Context) error { return r.Receive(ctx, r.receiver.See) }

func (r cloneReplica) Content() workload.Content { return r.spec.ContentOf(r.Get) }
