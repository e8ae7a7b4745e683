package chp

import (
	"context"
	"errors"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// collect checks and hashes the updates of one client. It runs in the
// goroutine that reads that client's connection, so clients are decoded in
// parallel; what it refuses is counted and goes no further. Clients of this
// package are told of it.
func (s *Server) collect(b *sockets.Batch) {
	wire, spans := b.Wire(), b.Spans()
	kept := spans[:0]
	var told refusalNotice
	for _, span := range spans {
		size, tag, _, err := kvmsg.Inspect(wire[span.Start:span.End], kvmsg.FromClient, s.opts.MaxValueSize)
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

// refusalNotice collects what a client is to be told of one batch.
type refusalNotice struct {
	peer     *sockets.Peer // its snapshot connection
	wire     []byte
	messages int
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
		s.teller.tell(n)
	}
}

// runCollector brings what the clients send to the sequencer.
func (s *Server) runCollector(ctx context.Context) {
	var b sockets.Batch
	defer b.Release()
	pace := newPacer(s.opts.SlowestIntake, s.publisher.Fullest)
	for s.collector.RecvBatch(ctx, &b) == nil {
		if s.members.former(b.Peer()) {
			s.refused[ReasonFormerConnection].Add(uint64(b.Len()))
			continue
		}
		// These come before take because nothing may wait under the sequencer's
		// mutex.
		if !pace.wait(ctx, extent(b.Spans())) || s.sequencer.room(ctx) != nil {
			return
		}
		if unfit := s.sequencer.take(&b); len(unfit) > 0 {
			var told refusalNotice
			for _, span := range unfit {
				told.add(s, b.Peer(), b.Wire()[span.Start:span.End], kvmsg.ErrMapFull)
			}
			told.send(s)
		}
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
