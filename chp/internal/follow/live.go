package follow

import (
	"context"
	"strings"
	"sync"
	"time"

	"clustermap/chp/internal/submit"
	"clustermap/internal/buf"
	"clustermap/internal/store"
	"clustermap/sockets"
)

// apply applies KVPUBs as they arrive, until the session fails.
func (s *session) apply() error {
	f := s.owner
	f.install(s)
	defer f.uninstall(s)
	defer s.hearInproc()()
	if s.opts.Dialect.Full { // the others send no HUGZ
		s.watchdog.expect(fromSubscriber, s.opts.HeartbeatTimeout)
	} else {
		s.watchdog.expect(0, 0)
	}
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
		s.watchdog.heard.Or(fromSubscriber)
		if err := s.take(); err != nil {
			return err
		}
		if s.stream.beats > 0 {
			s.stream.beats = 0
			f.opts.Replica.Beat()
			f.opts.Writer.Beat()
			f.syncs.again(s)
		}
	}
}

// resync ends the session because of a jump: now, by returning the error, or later,
// when the limit allows it.
func (s *session) resync() error {
	if s.resyncing != nil {
		return nil
	}
	gap := s.stream.missing
	delay := s.owner.resyncs[s.index].delay(time.Now())
	if delay == 0 {
		return gap
	}
	s.resyncing = time.AfterFunc(delay, func() { s.fail(gap) })
	return nil
}

// take applies those of the received messages that are new.
func (s *session) take() error {
	f, wire, spans := s.owner, s.batch.Wire(), s.batch.Spans()
	s.arrived += int64(buf.Extent(spans))
	spans, err := s.stream.filter(wire, spans)
	if s.ours && (len(spans) > 0 || s.partial.pending()) {
		wire, spans = s.partial.whole(wire, spans, s.stream.known())
	}
	if len(spans) > 0 {
		f.apply(s, wire, spans)
		if err == nil {
			err = s.fits(s.replica.Store.LiveBytes() + len(s.partial.wire))
		}
	} else { // a HUGZ: there is time
		f.advance(s)
		f.tidy()
	}
	s.countStale()
	return err
}

// hearInproc receives messages that come over the snapshot connection after the snapshot,
// such as refusals, until the function that it returns is called. Only an inproc
// connection needs that: it has no reader, so Prepare runs in the goroutine that
// receives.
func (s *session) hearInproc() (stop func()) {
	if s.unneeded.Load() || !strings.HasPrefix(s.server.Snapshot, "inproc://") {
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
func (f *Follower) tidy() {
	for range tidyPortions {
		if !f.opts.Replica.Tidy(store.TidyPortion) {
			return
		}
	}
}

func (s *session) countStale() {
	if s.stream.stale > 0 {
		s.owner.Counted.Stale.Add(s.stream.stale)
		s.stream.stale = 0
	}
}

// install makes a session's map the client's and lets updates be sent.
func (f *Follower) install(s *session) {
	if s.resumed {
		f.opts.Replica.Advance(s.partial.before(s.stream.sequence()))
		f.Counted.Resumed.Add(1)
	} else {
		f.opts.Replica.Install(s.replica, s.partial.before(s.stream.sequence()))
		f.Counted.Kept.Store(int64(s.kept))
		f.Counted.Syncs.Add(1)
	}
	f.past = noMap
	if s.resumes {
		f.past = s.end.ID
	}
	f.opts.Writer.Begin(&submit.Server{
		Session: s, Uplink: s.writerUplink(), Ours: s.ours, ReportsRefusals: s.reportsRefusals, Transactions: s.transactions && s.ours, Leases: s.leases, MaxValue: s.maxValue,
		Reply: s.applied.Load(), Sequence: s.partial.before(s.stream.sequence()),
	})
	f.current.Store(s)
	f.syncs.begin(s, s.resumes)
	f.setState(StateActive, s.server.Name)
	f.links.begin(f.ctx, s.server.Name)
}

// uninstall undoes install: updates wait for the next session, and those that were sent
// are kept for it or become uncertain. The state stays readable.
func (f *Follower) uninstall(s *session) {
	s.settle()
	changed := f.status.set(StateInitial, s.server.Name)
	f.opts.Writer.End()
	f.current.Store(nil)
	f.syncs.end()
	if changed {
		f.reportState(StateInitial, s.server.Name)
	}
}

// advance records how far the replica has come without an update that it wants.
func (f *Follower) advance(s *session) {
	if to := s.partial.before(s.stream.sequence()); to > f.opts.Replica.Sequence() {
		f.opts.Replica.Advance(to)
		f.syncs.came(to)
	}
}

// apply applies a batch of KVPUBs, and recognizes the client's own updates. It does not
// allocate.
func (f *Follower) apply(s *session, wire []byte, spans []buf.Span) {
	f.opts.Replica.Apply(wire, spans, s.partial.before(s.stream.sequence()))
	f.Counted.Updates.Add(uint64(len(spans)))

	f.syncs.came(f.opts.Replica.Sequence())
	f.opts.Writer.Applied(wire, spans) // now Get finds what a SetSync that returns has set
}
