package chp

import (
	"context"
	"strings"
	"sync"

	"clustermap/chp/internal/submit"
	"clustermap/internal/buf"
	"clustermap/internal/store"
	"clustermap/sockets"
)

// apply applies KVPUBs as they arrive, until the session fails.
func (s *session) apply() error {
	c := s.client
	c.install(s)
	defer c.uninstall(s)
	defer s.hearInproc()()
	s.watchdog.expect(earSubscriber, c.silence())
	for {
		if s.stream.missing != nil {
			if err := s.resync(); err != nil {
				return err
			}
		}
		if err := s.sub.RecvBatch(s.ctx, (*sockets.Batch)(&s.batch)); err != nil {
			return err
		}
		// The batch may have waited in the queue, and the reader for room in it: then
		// the client was slow, and the server not silent.
		s.watchdog.heard.Or(earSubscriber)
		if err := s.take(); err != nil {
			return err
		}
		if s.stream.beats > 0 {
			s.stream.beats = 0
			c.writer.Beat()
		}
	}
}

// take applies those of the received messages that are new.
func (s *session) take() error {
	c, wire, spans := s.client, s.batch.Wire(), s.batch.Spans()
	s.arrived += int64(buf.Extent(spans))
	spans, err := s.stream.filter(wire, spans)
	if len(spans) > 0 {
		c.apply(s, wire, spans)
		if err == nil {
			err = s.fits(s.replica.LiveBytes())
		}
	} else {
		c.tidy() // a HUGZ: there is time
	}
	s.countStale()
	return err
}

// hearInproc receives messages that come over the snapshot connection after the snapshot,
// such as refusals, until the function that it returns is called. Only an inproc
// connection needs that: it has no reader, so Prepare runs in the goroutine that
// receives.
func (s *session) hearInproc() (stop func()) {
	if s.unneeded.Load() || !strings.HasPrefix(s.server.snapshot, schemeInproc) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		var b sockets.Batch
		defer b.Release()
		for s.dealer.RecvBatch(ctx, &b) == nil {
		}
	})
	return func() {
		cancel()
		hearing.Wait()
	}
}

// tidy lets the store free memory that it no longer needs. Work that remains after a
// few portions waits for the next HUGZ, so that it does not delay updates.
func (c *Client) tidy() {
	for range tidyPortions {
		if !c.replica.Tidy(store.TidyPortion) {
			return
		}
	}
}

// tidyPortions is the number of portions that a client tidies at a time: some
// milliseconds.
const tidyPortions = 32

func (s *session) countStale() {
	if s.stream.stale > 0 {
		s.client.stale.Add(s.stream.stale)
		s.stream.stale = 0
	}
}

// install makes a session's map the client's and lets updates be sent.
func (c *Client) install(s *session) {
	c.replica.Replace(s.replica, s.stream.sequence())
	c.kept.Store(int64(s.kept))
	c.syncs.Add(1)
	c.writer.Begin(&submit.Server{
		Session: s, Uplink: s.writerUplink(), Ours: s.ours, ReportsRefusals: s.reportsRefusals, MaxValue: s.maxValue,
		Reply: s.applied.Load(), Sequence: s.stream.sequence(),
	})
	c.setState(StateActive, s.server.name)
	c.linked(s.server.name)
}

// uninstall undoes install: updates wait for the next session, and those that were sent
// are kept for it or become uncertain. The state stays readable.
func (c *Client) uninstall(s *session) {
	changed := c.status.set(StateInitial, s.server.name)
	c.writer.End()
	if changed {
		c.reportState(StateInitial, s.server.name)
	}
}

// apply applies a batch of KVPUBs, and recognizes the client's own updates. It does not
// allocate.
func (c *Client) apply(s *session, wire []byte, spans []buf.Span) {
	c.replica.Apply(wire, spans, s.stream.sequence())
	c.updates.Add(uint64(len(spans)))

	c.writer.Applied(wire, spans) // now Get finds what a SetSync that returns has set
}
