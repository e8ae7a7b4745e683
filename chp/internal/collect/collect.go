package collect

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/rights"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/peerlog"
	"clustermap/sockets"
)

// Options are what Clients need of its server.
type Options struct {
	Order    *order.Sequencer
	Full     bool // clients may be told what has become of their updates: model 6
	MaxValue int  // the largest value in bytes
	Refused  func(error)
	Log      *peerlog.Log
	Rights   *rights.Peers // nil if every client may write everything

	// Share returns what a client with a role may add, or nil if that is not bounded. It is used with Rights.
	Share func(*rights.Role) *order.Share

	// Owner returns who has granted a lease, and false if there is none.
	Owner func(id kvmsg.LeaseID) (name string, ok bool)

	Router   *sockets.Router // with the clients' snapshot connections
	Alone    func()          // a client waits for one update, and no other one is there; see hooks.Alone
	Timeout  time.Duration   // in which a client must take a report
	Instance string          // the identity of the server
	Relay    Relay           // of a server of a cluster, else nil
}

// Relay passes what clients send to the server that orders it: see package member.
type Relay interface {
	// Relays reports whether what clients send goes to another server, or has to wait for what went there.
	Relays() bool
	// Updates passes updates. done is called when they are in the map of this server, with those that it has no room for. The error is
	// that of the context.
	Updates(ctx context.Context, records []byte, spans []buf.Span, from order.From, done func(repeated bool, records []byte, unfit []buf.Span)) error
	// Requests passes requests. done gets their answers, unless lost is called: then the client has to send them again, over
	// another connection.
	Requests(ctx context.Context, messages []byte, spans []buf.Span, from order.From, done func(answers []byte), lost func()) error
	// Confirm reports whether this server led in a term after the call, also in the eyes of the others.
	Confirm(ctx context.Context, term uint64) (bool, error)
}

// Clients are the clients of a server, as far as it knows them. It takes their updates. It is safe for concurrent use.
type Clients struct {
	o        Options
	members  members
	notifier *notifier
	answers  *answers
}

// New returns what a server knows of its clients: nothing yet.
func New(o Options) *Clients {
	c := &Clients{o: o}
	c.members.init(o.Instance, o.Order)
	c.notifier = newNotifier(o.Router, c.applied, o.Timeout)
	c.answers = newAnswers(o.Order, o.Relay, c.notifier)
	return c
}

// Close ends the reports to clients.
func (c *Clients) Close() {
	c.answers.close()
	c.notifier.close()
}

// Collector is the socket that receives updates.
type Collector interface {
	RecvBatch(ctx context.Context, b *sockets.Batch) error
	Events() sockets.PollEvents
}

// Prepare checks and hashes the updates of one client. It runs in the goroutine
// that reads the client's connection, so clients are processed in parallel. It counts
// refused updates and removes them from the batch; clients of this package get a
// notice. The last one of their questions stays, at the end.
func (c *Clients) Prepare(b *hooks.Batch) {
	wire, spans, peer := b.Wire(), b.Spans(), (*sockets.Peer)(b.Peer())
	kept := spans[:0]
	var told refusalNotice
	var numbers numberOrder
	var question buf.Span
	var request txn.Request
	refused, why := 0, error(nil) // the last one's reason
	role := c.bound(peer)
	for _, span := range spans {
		var err error
		if m := wire[span.Start:span.End]; c.o.Full && (span.Tag == 0 || span.Tag == requestTag) && txn.IsRequest(m) {
			span.Tag = requestTag
			if err = c.check(&request, m, peer, role); err == nil {
				kept = append(kept, span)
				continue
			}
			c.o.Refused(err)
			refused, why = refused+1, err
			continue
		}
		if span.Tag == 0 { // not found by Scan
			var size int
			if ledger.IsQuestion(wire[span.Start:span.End]) {
				question = span
				continue
			}
			size, span.Tag, _, err = kvmsg.Inspect(wire[span.Start:span.End], kvmsg.FromClient, c.o.MaxValue)
			if err == nil {
				span.End = span.Start + uint32(size)
			}
		}
		if err == nil && !numbers.next(uint64(kvmsg.Record(wire[span.Start:span.End]).Seq())) && numbers.matters(peer) {
			err = kvmsg.ErrOrder
		}
		if err == nil && role != nil {
			err = c.mayWrite(role, kvmsg.Record(wire[span.Start:span.End]))
		}
		if err != nil {
			c.o.Refused(err)
			refused, why = refused+1, err
			told.add(c, peer, wire[span.Start:span.End], err)
			continue
		}
		kept = append(kept, span)
	}
	told.send(c)
	if refused > 0 {
		c.o.Log.Refused("updates refused", peer, why, slog.Int("updates", refused))
	}
	if question.End > 0 {
		kept = append(kept, question)
	}
	b.SetSpans(kept)
}

// takeQuestion removes the question from a batch, and reports whether there was one.
func takeQuestion(b *hooks.Batch) bool {
	spans := b.Spans()
	last := len(spans) - 1
	if last < 0 || !ledger.IsQuestion(b.Wire()[spans[last].Start:spans[last].End]) {
		return false
	}
	b.SetSpans(spans[:last])
	return true
}

// Scan finds, checks and hashes the update at the start of b, if it is valid and
// in canonical form, and finds a request (hooks.Scan).
func (c *Clients) Scan(b []byte) (size int, tag uint64) {
	if txn.IsRequest(b) {
		return txn.SizeOf(b), requestTag
	}
	return kvmsg.Scan(b, kvmsg.FromClient, c.o.MaxValue)
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
func (n *refusalNotice) add(c *Clients, from *sockets.Peer, update []byte, err error) {
	var message *kvmsg.MessageError
	if !kvmsg.IsCanonical(update) || !errors.As(err, &message) {
		return
	}
	if n.peer == nil {
		if n.peer = c.members.snapshotPeer(from); n.peer == nil {
			return
		}
	}
	if id := kvmsg.Record(update).UUID(); len(id) == kvmsg.UUIDSize {
		n.wire = wire.AppendRefusal(n.wire, id, message.Reason)
		n.messages++
	}
}

func (n *refusalNotice) send(c *Clients) {
	if n.messages > 0 {
		c.notifier.notify(n)
	}
}

// Run passes the clients' updates to the sequencer, until the context ends.
func (c *Clients) Run(ctx context.Context, from Collector, pace *order.Pacer) {
	var b hooks.Batch
	defer b.Release()
	for from.RecvBatch(ctx, (*sockets.Batch)(&b)) == nil {
		if !c.collect(ctx, &b, pace, from) {
			return
		}
	}
}

// collect passes a batch of a socket to the sequencer. It returns false if the context has
// ended before.
func (c *Clients) collect(ctx context.Context, b *hooks.Batch, pace *order.Pacer, socket Collector) bool {
	peer := (*sockets.Peer)(b.Peer())
	asks := takeQuestion(b)
	from, former := c.members.from(peer)
	if former {
		for range b.Len() {
			c.o.Refused(errFormer)
		}
		return true
	}
	asks = asks || from.unasked
	if c.o.Rights != nil {
		from.Share = c.o.Share(c.o.Rights.Of(peer))
	}
	if !c.o.Rights.Settled(peer) {
		c.recheck(b, peer)
	}
	// All waiting happens here, because nothing may wait under the sequencer's
	// mutex.
	if !pace.Wait(ctx, buf.Extent(b.Spans())) || c.o.Order.Room(ctx) != nil {
		return false
	}
	if b.Len() == 1 && (asks || isRequest(b.Spans()[0], b.Wire())) && socket.Events()&sockets.PollIn == 0 {
		c.o.Alone()
	}
	for rest := b.Spans(); ; {
		n := 0
		for n < len(rest) && !isRequest(rest[n], b.Wire()) {
			n++
		}
		last := n == len(rest)
		b.SetSpans(rest[:n])
		for n > 0 || last {
			relayed, err := c.relay(ctx, b, from, asks && last)
			if err != nil {
				return false
			}
			if relayed || c.order(b, from, asks && last) {
				break
			}
			if c.o.Order.Room(ctx) != nil {
				return false
			}
		}
		if last {
			return true
		}
		rest = rest[n:]
		for n = 0; n < len(rest) && isRequest(rest[n], b.Wire()); n++ {
		}
		if !c.transact(ctx, b, rest[:n], from) {
			return false
		}
		rest = rest[n:]
	}
}

// order passes a batch to the sequencer, and reports refusals and progress to its client. If it
// returns false, it did nothing, and Sequencer.Room has to be called. asks says that the client
// wants to know of its progress.
func (c *Clients) order(b *hooks.Batch, from sender, asks bool) bool {
	peer := (*sockets.Peer)(b.Peer())
	repeated := 0
	if b.Len() > 0 {
		var unfit []buf.Span
		var ok bool
		if unfit, repeated, ok = c.o.Order.Accept(b, from.From); !ok {
			return false
		}
		c.refuse(b.Wire(), peer, unfit)
	}
	if from.Numbered && c.o.Full {
		c.notifyProgress(peer, from, repeated > 0 || asks, buf.Extent(b.Spans()))
	}
	return true
}

// relay passes a batch to another server of the cluster, if this one does not order updates.
func (c *Clients) relay(ctx context.Context, b *hooks.Batch, from sender, asks bool) (relayed bool, err error) {
	if c.o.Relay == nil {
		return false, nil
	}
	if !c.o.Relay.Relays() {
		return false, nil
	}
	peer, numbered := (*sockets.Peer)(b.Peer()), from.Numbered && c.o.Full
	if c.o.Order.Stale(from.From) {
		peer.Disconnect(order.ErrNotActive)
		return true, nil
	}
	report := numbered && c.due(from, asks, buf.Extent(b.Spans()))
	last := uint64(0)
	if n := b.Len(); n > 0 && numbered {
		last = uint64(kvmsg.Record(b.Wire()[b.Spans()[n-1].Start:]).Seq())
		from.member.relay()
	}
	return true, c.o.Relay.Updates(ctx, b.Wire(), b.Spans(), from.From, func(repeated bool, records []byte, unfit []buf.Span) {
		c.refuse(records, peer, unfit)
		if due := last > 0 && from.member.relayed(last); due || report || numbered && repeated {
			c.report(peer, from)
		}
	})
}

// refuse reports updates for which the map, or the client's share of it, has no room. Their tags are the reasons.
func (c *Clients) refuse(records []byte, peer *sockets.Peer, unfit []buf.Span) {
	if len(unfit) == 0 {
		return
	}
	var told refusalNotice
	var last *kvmsg.MessageError
	for _, span := range unfit {
		if last = kvmsg.ErrMapFull; kvmsg.Reason(span.Tag) == kvmsg.ReasonLimit {
			last = kvmsg.ErrLimit
		}
		told.add(c, peer, records[span.Start:span.End], last)
	}
	told.send(c)
	c.o.Log.Refused("updates refused", peer, last, slog.Int("updates", len(unfit)))
}

// notifyProgress reports the progress of its updates to a client: now, because it asks
// for that, or has sent some again, since the previous report may not have arrived; or if its
// interval is over. size is the size of the batch.
func (c *Clients) notifyProgress(from *sockets.Peer, who sender, now bool, size int) {
	if c.due(who, now, size) {
		c.report(from, who)
	}
}

// due reports whether the progress is to be reported behind a batch of a size: see notifyProgress.
func (c *Clients) due(who sender, now bool, size int) bool {
	if who.member == nil {
		return false // the client is no longer known
	}
	who.member.unreported += size
	if !now && (who.every == 0 || who.member.unreported < who.every) {
		return false
	}
	who.member.unreported = 0
	return true
}

// report reports the progress to a client.
func (c *Clients) report(from *sockets.Peer, who sender) {
	if peer := c.members.snapshotPeer(from); peer != nil {
		c.notifier.notifyProgress(peer, who)
	}
}
