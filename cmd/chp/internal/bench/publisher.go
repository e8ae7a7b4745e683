package bench

import (
	"context"
	"time"

	"clustermap/chp"
	"clustermap/cmd/chp/internal/bench/link"
	"clustermap/cmd/chp/internal/bench/workload"
	"clustermap/internal/pace"
)

// publisher is the role that sends the updates. Its client replicates only its
// sentinel, because the replicas are other processes.
func publisher(p *link.Peer) error {
	sentinel := p.Spec.Sentinel(p.Publisher)
	c, err := newClient(p, chp.ClientOptions{Subtrees: []string{sentinel}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := p.Context()
	if err := c.WaitActive(ctx); err != nil {
		return err
	}
	s := &sender{peer: p, client: c, source: workload.NewSource(p.Spec, p.Publisher), sentinel: sentinel}
	p.Send(link.Event{Kind: link.Ready})

	if err := p.Await(link.Warm); err != nil {
		return err
	}
	// The first sentinel also waits until the server receives from this client.
	if err := s.mark(ctx, sentinelBegin); err != nil {
		return err
	}
	if err := s.send(ctx, p.Spec.Warmed(p.Publisher), 0); err != nil {
		return err
	}
	if err := s.mark(ctx, sentinelWarm); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Warmed})

	if err := p.Await(link.Go); err != nil {
		return err
	}
	first := workload.Now()
	if err := s.send(ctx, p.Spec.Measured(p.Publisher), p.Rate); err != nil {
		return err
	}
	if err := s.mark(ctx, sentinelEnd); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Sent, First: first})

	if err := p.Await(link.Clean); err != nil {
		return nil // not needed: the server belongs to this run and ends
	}
	return s.clean(ctx)
}

// Values of a sentinel.
const (
	sentinelBegin = "begin"
	sentinelWarm  = "warm" // the warm-up has been sent
	sentinelEnd   = "end"  // everything has been sent
)

type sender struct {
	peer     *link.Peer
	client   *chp.Client
	source   *workload.Source
	sentinel string
}

// mark sets the sentinel and waits until the server has published it, and therefore all
// updates before it.
func (s *sender) mark(ctx context.Context, value string) error {
	_, err := s.client.SetSync(ctx, s.sentinel, []byte(value))
	return err
}

// send sends the next n updates, at the given rate unless it is 0.
func (s *sender) send(ctx context.Context, n int, rate float64) error {
	if rate > 0 {
		return s.pace(ctx, n, rate)
	}
	for i := range n {
		key, value := s.source.Next()
		if err := s.client.Set(ctx, key, value); err != nil {
			return err
		}
		if i%workload.StampInterval == 0 {
			s.peer.Count.Add(1) // shows that this process is alive; not a count
		}
	}
	return nil
}

// pace sends the updates that are due and then sleeps. Each update carries the time at
// which it was sent, so that how late the publisher itself was does not count.
func (s *sender) pace(ctx context.Context, n int, rate float64) error {
	var start time.Time
	for sent := 0; sent < n; {
		due := 1
		if sent > 0 {
			due = min(n, 1+int(time.Since(start).Seconds()*rate))
		}
		for ; sent < due; sent++ {
			s.source.Stamp()
			if sent == 0 {
				start = time.Now() // after the first stamp, so that no pause makes the run faster than its rate
			}
			key, value := s.source.Next()
			if err := s.client.Set(ctx, key, value); err != nil {
				return err
			}
		}
		s.peer.Count.Add(1)
		next := start.Add(time.Duration(float64(sent) / rate * float64(time.Second)))
		if err := pace.Sleep(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// clean deletes the keys of the run from an existing server.
func (s *sender) clean(ctx context.Context) error {
	for _, key := range append(s.source.Keys(), s.sentinel) {
		if err := s.client.Delete(ctx, key); err != nil {
			return err
		}
	}
	if err := s.client.Flush(ctx); err != nil {
		return err
	}
	s.peer.Send(link.Event{Kind: link.Cleaned})
	<-ctx.Done()
	return nil
}
