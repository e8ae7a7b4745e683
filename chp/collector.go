package chp

import (
	"context"
	"errors"
	"log/slog"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// checkUpdates checks and hashes the updates of one client. It runs in the goroutine
// that reads the client's connection, so clients are processed in parallel. It counts
// refused updates and removes them from the batch; clients of this package get a
// notice.
func (s *Server) checkUpdates(b *hooks.Batch) {
	wire, spans, peer := b.Wire(), b.Spans(), (*sockets.Peer)(b.Peer())
	kept := spans[:0]
	var told refusalNotice
	var numbers numberOrder
	refused, why := 0, error(nil) // the last one's reason
	for _, span := range spans {
		var err error
		if span.Tag == 0 { // not found by scanUpdate
			var size int
			size, span.Tag, _, err = kvmsg.Inspect(wire[span.Start:span.End], kvmsg.FromClient, s.opts.MaxValueSize)
			if err == nil {
				span.End = span.Start + uint32(size)
			}
		}
		if err == nil && !numbers.next(uint64(kvmsg.Record(wire[span.Start:span.End]).Seq())) && numbers.matters(peer) {
			err = kvmsg.ErrOrder
		}
		if err != nil {
			s.refused.add(err)
			refused, why = refused+1, err
			told.add(s, peer, wire[span.Start:span.End], err)
			continue
		}
		kept = append(kept, span)
	}
	told.send(s)
	if refused > 0 {
		s.peerLog.Refused("updates refused", peer, why, slog.Int("updates", refused))
	}
	b.SetSpans(kept)
	if len(kept) == 0 {
		return
	}
	if queued := s.members.queued(peer); queued != nil {
		queued.Add(int64(len(kept)))
	}
}

// scanUpdate finds, checks and hashes the update at the start of b, if it is valid and
// in canonical form (hooks.Scan).
func (s *Server) scanUpdate(b []byte) (size int, tag uint64) {
	return kvmsg.Scan(b, kvmsg.FromClient, s.opts.MaxValueSize)
}

// refusalNotice reports the refused updates of one batch to their client.
type refusalNotice struct {
	peer     *sockets.Peer // the client's snapshot connection
	wire     []byte
	messages int

	progress bool // for the notifier: report the progress of the client too
	who      sender
}

// add adds a refused update. It ignores updates that are not in canonical form, because
// clients that read notices send no others; kvmsg.Inspect leaves a refused update as it
// was.
func (n *refusalNotice) add(s *Server, from *sockets.Peer, update []byte, err error) {
	var message *MessageError
	if !kvmsg.IsCanonical(update) || !errors.As(err, &message) {
		return
	}
	if n.peer == nil {
		if n.peer = s.members.snapshotPeer(from); n.peer == nil {
			return
		}
	}
	if id := kvmsg.Record(update).UUID(); len(id) == kvmsg.UUIDSize {
		n.wire = wire.AppendRefusal(n.wire, id, message.Reason)
		n.messages++
	}
}

func (n *refusalNotice) send(s *Server) {
	if n.messages > 0 {
		s.notifier.notify(n)
	}
}

// runCollector passes the clients' updates to the sequencer.
func (s *Server) runCollector(ctx context.Context) {
	var b hooks.Batch
	defer b.Release()
	pace := s.newPacer()
	for s.collector.RecvBatch(ctx, (*sockets.Batch)(&b)) == nil {
		if !s.collect(ctx, &b, pace) {
			return
		}
	}
}

// collect passes a batch to the sequencer. It returns false if the context has ended
// before.
func (s *Server) collect(ctx context.Context, b *hooks.Batch, pace *order.Pacer) bool {
	peer := (*sockets.Peer)(b.Peer())
	queued := s.members.queued(peer)
	if queued != nil {
		defer queued.Add(-int64(b.Len()))
	}
	from, former := s.members.from(peer)
	drained := queued == nil || queued.Load() <= int64(b.Len())
	if former {
		s.refused[ReasonFormerConnection].Add(uint64(b.Len()))
		return true
	}
	// All waiting happens here, because nothing may wait under the sequencer's
	// mutex.
	if !pace.Wait(ctx, buf.Extent(b.Spans())) || s.sequencer.Room(ctx) != nil {
		return false
	}
	for !s.order(b, from, drained) {
		if s.sequencer.Room(ctx) != nil {
			return false
		}
	}
	return true
}

// order passes a batch to the sequencer, and reports refusals and progress to its client. If it
// returns false, it did nothing, and Sequencer.Room has to be called. drained says that no
// more updates of the client wait.
func (s *Server) order(b *hooks.Batch, from sender, drained bool) bool {
	peer := (*sockets.Peer)(b.Peer())
	unfit, repeated, ok := s.sequencer.Accept(b, from.From)
	if !ok {
		return false
	}
	if len(unfit) > 0 {
		var told refusalNotice
		for _, span := range unfit {
			told.add(s, peer, b.Wire()[span.Start:span.End], kvmsg.ErrMapFull)
		}
		told.send(s)
		s.peerLog.Refused("updates refused", peer, kvmsg.ErrMapFull, slog.Int("updates", len(unfit)))
	}
	if from.Numbered && s.dialect.Full {
		s.notifyProgress(peer, from, repeated > 0 || drained && from.replies, buf.Extent(b.Spans()))
	}
	return true
}

// notifyProgress reports the progress of its updates to a client: now, because it waits
// for that, or has sent some again, since the previous report may not have arrived; or if its
// interval is over. size is the size of the batch.
func (s *Server) notifyProgress(from *sockets.Peer, who sender, now bool, size int) {
	if who.member == nil {
		return // the client is no longer known
	}
	who.member.unreported += size
	if !now && (who.every == 0 || who.member.unreported < who.every) {
		return
	}
	who.member.unreported = 0
	if peer := s.members.snapshotPeer(from); peer != nil {
		s.notifier.notifyProgress(peer, who)
	}
}
