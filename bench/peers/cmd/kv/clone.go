package main

import (
	"context"

	"clustermap/bench/peers/internal/libzmq"
)

// cloneSystem is a CHP server of the ZeroMQ Guide's design, model 5 of its Clone pattern,
// in C on libzmq: ROUTER for snapshots, PULL for updates, XPUB, and one thread beside
// libzmq's own. Server, publisher and replica are written for this comparison: updates go
// to C and come back many at a time, hash tables are in C, frames are passed on without
// copying, and the server takes up to 1,000 updates before it polls again. The bytes are those
// of chp. Queues hold 100,000 messages, and XPUB waits instead of dropping, so nothing is
// lost.
var cloneSystem = system{name: "libzmq", share: 4, serve: serveClone, publish: publishClone, follow: followClone}

func serveClone(ctx context.Context, ready func(...string)) error {
	failed := make(chan error, 1)
	go func() { failed <- libzmq.ServeClone(ready) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil // its thread ends with the process
	}
}

type clonePublisher struct{ *libzmq.ClonePublisher }

func publishClone(_ context.Context, servers []string, _ workload) (publisher, error) {
	p, err := libzmq.NewClonePublisher(servers)
	return clonePublisher{p}, err
}

func (p clonePublisher) set(u update) error { return p.Set(u.key, u.value) }

func (p clonePublisher) push() error { return p.Push() }

func (p clonePublisher) settle(context.Context) error { return nil } // nothing is answered

type cloneReplica struct {
	*libzmq.CloneReplica
	see func(key, value []byte) bool
}

func followClone(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
	r, err := libzmq.JoinClone(ctx, servers)
	return cloneReplica{r, see}, err
}

func (r cloneReplica) run(ctx context.Context) error { return r.Receive(ctx, r.see) }

func (r cloneReplica) get(key string) ([]byte, bool) { return r.Get(key) }
