package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"clustermap/chp"
	"clustermap/cmd/chp/internal/bench/link"
	"clustermap/cmd/chp/internal/bench/workload"
)

// watchQueue lets a watch fall behind the replica for a moment, as a machine
// with few cores makes it, without the run being lost. It bounds memory; what
// lies in it counts as latency.
const watchQueue = 1 << 30

// replica is the role that receives every update and checks it.
func replica(p *link.Peer) error {
	c, err := newClient(p, chp.ClientOptions{
		Subtrees:   []string{p.Spec.Subtree},
		WatchQueue: watchQueue,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	w, err := c.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := c.WaitActive(p.Context()); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Ready})

	// Asked to finish, it reports what it has: the parent sees no progress.
	ctx, finish := context.WithCancel(p.Context())
	defer finish()
	go func() {
		if p.Await(link.Finish) == nil {
			finish()
		}
	}()
	r := receiver{
		peer:      p,
		watch:     w,
		checker:   workload.NewChecker(p.Spec),
		sentinels: []byte(workload.SentinelPrefix(p.Spec.Prefix)),
	}
	if err := r.run(ctx); err != nil && ctx.Err() == nil {
		return err
	}

	report := r.checker.Report(contentOf(c, r.sentinels))
	p.Send(link.Event{Kind: link.Done, Report: &report})
	<-p.Context().Done()
	return nil
}

// contentOf is the fingerprint of what the client holds, sentinels left out.
func contentOf(c *chp.Client, sentinels []byte) workload.Content {
	var content workload.Content
	c.Range(func(key, value []byte) bool {
		if !bytes.HasPrefix(key, sentinels) {
			content.Add(key, value)
		}
		return true
	})
	return content
}

// stampInterval is how many events share one look at the clock. Their times of
// arrival differ by what it takes to check so many: a microsecond or two.
const stampInterval = 32

type receiver struct {
	peer      *link.Peer
	watch     *chp.Watch
	checker   *workload.Checker
	sentinels []byte
	synced    bool
	warmed    int // publishers that have sent the warm-up
	ended     int // publishers that have sent everything

	arrived int64 // the latest look at the clock
	since   int   // events since then
}

// run takes events until every publisher has sent everything.
func (r *receiver) run(ctx context.Context) error {
	var fault error
	take := func(e chp.Event) bool {
		if r.since++; r.since >= stampInterval {
			r.stamp()
		}
		fault = r.take(&e)
		return fault == nil
	}
	for r.ended < r.peer.Spec.Publishers {
		r.since = stampInterval // the first event may have been waited for
		if err := errors.Join(r.watch.NextBatch(ctx, take), fault); err != nil {
			return err
		}
	}
	return nil
}

// stamp does what is done for many events at once.
func (r *receiver) stamp() {
	r.arrived, r.since = workload.Now(), 0
	r.peer.Count.Store(r.checker.Delivered())
}

func (r *receiver) take(e *chp.Event) error {
	switch {
	case e.Op == chp.OpSynced && r.synced:
		return fmt.Errorf("the connection broke, or the server sent it away: a second snapshot at sequence %d", e.Sequence)
	case e.Op == chp.OpSynced:
		r.synced = true
	case !r.synced:
		// What an earlier run left behind in an existing server.
		return fmt.Errorf("the server already holds %q", e.Key)
	case bytes.HasPrefix(e.Key, r.sentinels):
		r.sentinel(string(e.Value))
	default:
		// A delete is a value that no publisher sent.
		r.checker.See(e.Value, r.arrived)
	}
	return nil
}

// sentinel counts publishers. Their updates before it have been seen, if they
// came at all.
func (r *receiver) sentinel(value string) {
	switch value {
	case sentinelWarm:
		if r.warmed++; r.warmed == r.peer.Spec.Publishers {
			r.peer.Send(link.Event{Kind: link.Warmed})
		}
	case sentinelEnd:
		r.ended++
	}
}
