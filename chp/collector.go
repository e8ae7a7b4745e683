package chp

import (
	"context"
	"errors"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// checkUpdates checks and hashes the updates of one client. It runs in the goroutine
// that reads that client's connection, so clients are processed in parallel. Refused
// updates are counted and removed from the batch; clients of this package get a notice.
func (s *Server) checkUpdates(b *sockets.Batch) {
	wire, spans := b.Wire(), b.Spans()
	kept := spans[:0]
	var told refusalNotice
	var order numberOrder
	for _, span := range spans {
		size, tag, _, err := kvmsg.Inspect(wire[span.Start:span.End], kvmsg.FromClient, s.opts.MaxValueSize)
		if err == nil && !order.next(uint64(kvmsg.Record(wire[span.Start:span.End]).Seq())) && order.matters(b.Peer()) {
			err = kvmsg.ErrOrder
		}
		if err != nil {
			s.refused.add(err)
			told.add(s, b.Peer(), wire[span.Start:span.End], err)
			continue
		}
		span.End = span.Start + uint32(size)
		span.Tag = tag
		kept = append(kept, span)
	}
	told.send(s)
	b.SetSpans(kept)
}

// refusalNotice is the message that reports the refused updates of one batch to their
// client.
type refusalNotice struct {
	peer     *sockets.Peer // its snapshot connection
	wire     []byte
	messages int

	progress bool // of the notifier: how far the client's updates have come is to be told, too
	id       clientID
}

// add notes that an update was refused. Clients that are told send the canonical
// form only, so any other is passed over. kvmsg.Inspect has not changed a refused update.
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
		n.wire = appendRefusal(n.wire, id, message.Reason)
		n.messages++
	}
}

// send tells the client.
func (n *refusalNotice) send(s *Server) {
	if n.messages > 0 {
		s.notifier.notify(n)
	}
}

// runCollector brings what the clients send to the sequencer.
func (s *Server) runCollector(ctx context.Context) {
	var b sockets.Batch
	defer b.Release()
	pace := newPacer(s.opts.SlowestIntake, s.fullest)
	for s.collector.RecvBatch(ctx, &b) == nil {
		from, former := s.members.from(b.Peer())
		if former {
			s.refused[ReasonFormerConnection].Add(uint64(b.Len()))
			continue
		}
		// These come before take because nothing may wait under the sequencer's
		// mutex.
		if !pace.wait(ctx, extent(b.Spans())) || s.sequencer.room(ctx) != nil {
			return
		}
		unfit, repeated, ok := s.sequencer.accept(&b, from)
		for !ok {
			if s.sequencer.room(ctx) != nil {
				return
			}
			unfit, repeated, ok = s.sequencer.accept(&b, from)
		}
		if len(unfit) > 0 {
			var told refusalNotice
			for _, span := range unfit {
				told.add(s, b.Peer(), b.Wire()[span.Start:span.End], kvmsg.ErrMapFull)
			}
			told.send(s)
		}
		if repeated > 0 || from.every > 0 {
			s.tellProgress(b.Peer(), from, repeated, extent(b.Spans()))
		}
	}
}

// tellProgress tells a client how far its updates have come: if it has sent some
// again, since what became of those may not have reached it, and after as many bytes
// as it wants. size is the size of the batch that was taken.
func (s *Server) tellProgress(from *sockets.Peer, who sender, repeated, size int) {
	if who.member == nil {
		return // it has gone
	}
	who.member.unreported += size
	if repeated == 0 && who.member.unreported < who.every {
		return
	}
	who.member.unreported = 0
	if peer := s.members.snapshotPeer(from); peer != nil {
		s.notifier.notifyProgress(peer, who.id)
	}
}

// extent returns how many bytes lie between the beginning of the first message and
// the end of the last.
func extent(spans []sockets.Span) int {
	if len(spans) == 0 {
		return 0
	}
	return int(spans[len(spans)-1].End - spans[0].Start)
}
