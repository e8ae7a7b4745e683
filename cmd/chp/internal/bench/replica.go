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

// watchQueue is large enough for a watch to fall behind for a moment on a machine with
// few cores. It bounds memory. Time in the queue counts as latency.
const watchQueue = 1 << 30

// replica is the role that receives and checks every update.
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

	// The parent has seen no progress and asks for a report.
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

// contentOf returns the fingerprint of the client's map without sentinels.
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

// stampInterval is the number of events that share one reading of the clock. Checking
// that many takes a microsecond or two.
const stampInterval = 32

type receiver struct {
	peer      *link.Peer
	watch     *chp.Watch
	checker   *workload.Checker
	sentinels []byte
	synced    bool
	warmed    int // publishers whose warm-up has arrived
	ended     int // publishers whose updates have all arrived

	arrived int64 // last reading of the clock
	since   int   // events since that reading
}

// run receives events until all updates of every publisher have arrived.
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
		r.since = stampInterval // the wait for the first event may have been long
		if err := errors.Join(r.watch.NextBatch(ctx, take), fault); err != nil {
			return err
		}
	}
	return nil
}

// stamp does the work that is done once for many events.
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
		// An earlier run has left it in an existing server.
		return fmt.Errorf("the server already holds %q", e.Key)
	case bytes.HasPrefix(e.Key, r.sentinels):
		r.sentinel(string(e.Value))
	default:
		// No publisher deletes keys.
		r.checker.See(e.Value, r.arrived)
	}
	return nil
}

// sentinel handles a sentinel. It arrives after all updates of its publisher.
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
