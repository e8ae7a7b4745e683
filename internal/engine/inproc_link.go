package engine

import (
	"context"
	"errors"
	"io"
	"sync"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
	"clustermap/internal/queue"
	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// half is a socket's side of an inproc connection. There are no streams, no
// reader and no writer: this side takes all messages that the other side has
// queued in its outbox at once, by exchanging the queue.
//
// The receive calls do that: the first message in an empty outbox lists our
// inqueue as ready, and a receive call that finds it ready but empty fetches.
// So a message passes from the goroutine of one application to that of the
// other with no goroutine in between. A socket that must handle messages even
// without a receive call, such as a publisher its subscriptions, is eager: there the
// sender itself fetches, so that a subscription is in force when Subscribe returns (see
// pump). If the application is behind, because it does not receive from an XPUB, the
// goroutine that runs the half fetches later.
//
// Fetched messages count as queued at the sender (Outbox.held) until the
// application has received them. So the high-water mark of the outbox, the sum
// of those of both sides, limits the two queues together.
//
// Lock order: half.fetching before a pattern's mutex before Outbox.mu before
// the other socket's Inbox.mu.
type half struct {
	socket *Socket
	pipe   *Pipe
	peer   *Peer
	conn   *conn
	other  *half
	traits *Pattern
	eager  bool
	ignore bool // discard the peer's messages; changes under fetching

	newcomer *Newcomer // the peer, if it had to wait for its identity; otherwise nil

	more chan struct{} // has the goroutine of an eager side fetch; capacity 1, nil for others

	ending *sync.Once // runs part; the two halves share it

	fetching sync.Mutex
	flows    bool // Fetch may run: true from begin to fetchLast. fetching guards it and the fields below
	taken    queue.Wire
	batch    Batch
	bytes    int // of batch
}

// newHalf returns the half of a pipe whose other side is the given socket.
func newHalf(p *Pipe, other *Socket) *half {
	h := &half{
		socket: p.socket,
		pipe:   p,
		peer:   NewPeer(p, other.announced()),
		traits: p.socket.pattern,
	}
	h.conn = h.peer.conn
	if h.traits.Ordered {
		h.eager, h.more = true, make(chan struct{}, 1)
	}
	return h
}

// attach makes the other side known to the socket.
func (h *half) attach() {
	refused := h.socket.connected(h.pipe, h.peer)
	h.newcomer, _ = errors.AsType[*Newcomer](refused)
	h.ignore = refused != nil // a newcomer is ignored until it is admitted
}

// begin allows fetching. Both sides must be attached.
func (h *half) begin() {
	h.fetching.Lock()
	h.flows = true
	h.fetching.Unlock()
}

// open makes the messages of this side available, including those that it has queued
// already.
func (h *half) open() {
	to := h.other
	// The other side's queue is ours. That of a publisher holds subscriptions, all
	// of which count.
	conflate := to.socket.Config().Conflate && !to.traits.Subscribed
	for linked := false; !linked; {
		near, far := h.socket.Config(), to.socket.Config()
		limits := h.pipe.Out.Link(far.Recv, conflate)
		to.socket.In.Connect(&to.pipe.In, to, limits.Low().Messages)
		linked = near == h.socket.Config() && far == to.socket.Config() // otherwise relimit may have come too early
	}
	h.pipe.Out.Launch(to.notify, queue.Direct{}, false)
	h.pipe.hasRoomAgain() // the other side's high-water mark has been added
}

// notify tells the receivers, or our own goroutine if we are eager, that there are
// messages to fetch. The other side's Outbox.mu is held.
func (h *half) notify() {
	if h.eager {
		wake.Signal(h.more)
		return
	}
	h.socket.In.Offer(&h.pipe.In)
}

// run serves the connection until it ends: with the context, because one of the
// sides closes it, or because of a fault. It returns the reason.
func (h *half) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { h.conn.Close(queue.ErrClosed) })
	defer stop()
	if n := h.newcomer; n != nil && n.wait(0) {
		h.fetching.Lock()
		h.ignore = false
		h.fetching.Unlock()
		h.other.open()
	}
	h.serve()
	h.finish()
	err := &PeerError{h.peer.remote, h.conn.Cause(io.EOF)}
	if !h.socket.closes(h.conn, err) {
		h.socket.report(Event{Kind: Disconnected, Endpoint: h.pipe.Endpoint, Remote: h.peer.remote, Peer: h.peer, Err: err})
	}
	return err
}

// finish ends the connection for both sides. The first call does the work, and
// other calls wait until it is done. No lock may be held.
func (h *half) finish() { h.ending.Do(h.part) }

// part does the work of finish. Both sides seal their queues, then each fetches
// the rest of the other's queue, and only then are the queues discarded. So no
// message that a closing socket has sent is lost.
func (h *half) part() {
	sides := [...]*half{h, h.other}
	for _, s := range sides {
		s.conn.Close(io.EOF) // has no effect if there is a reason already
		s.pipe.Out.Seal()
	}
	for _, s := range sides {
		s.fetchLast()
	}
	for _, s := range sides {
		s.socket.totals.ended(s.pipe, s.peer)
		s.socket.In.Peers(-1)
		if !s.rejected() {
			s.socket.countPeers(-1)
			s.socket.pattern.Detach(s.pipe, s.peer)
			if !s.pipe.Lasting { // as in libzmq, there is no hiccup message: the connection is not made again
				s.socket.tellEnd(s.pipe, s.peer)
			}
		}
	}
	for _, s := range sides {
		s.pipe.Out.Discard()
		if !s.pipe.Lasting {
			s.socket.leave(s.pipe)
		}
		s.socket.In.Tell()
	}
}

// rejected reports whether the peer was never admitted.
func (h *half) rejected() bool {
	if h.newcomer != nil {
		return h.newcomer.giveUp(h.newcomer)
	}
	return h.ignore
}

// serve waits until the connection must end. Meanwhile an eager side fetches
// the messages that pump could not fetch because the application was behind.
func (h *half) serve() {
	if !h.eager {
		<-h.conn.Gone()
		return
	}
	for {
		select {
		case <-h.more:
			for !h.Fetch() {
				if !h.socket.In.Settled(h.traits.Notices, h.conn.Gone()) {
					break
				}
			}
		case <-h.conn.Gone():
			return
		}
	}
}

// pump makes an eager side fetch the messages queued for it: at once, or in its own
// goroutine if the application is behind. The other side calls it after queueing, with no
// lock held.
func (h *half) pump() {
	if !h.Fetch() {
		wake.Signal(h.more) // the goroutine will wait for room
	}
}

// Fetch moves messages queued by the other side into the inbox: until the inbox has a
// message or, for an eager side, until nothing is left. If it finds nothing, the next
// message will notify this side. It reports false if it has stopped early because the
// application is behind.
func (h *half) Fetch() bool {
	h.fetching.Lock()
	defer h.fetching.Unlock()
	for h.flows {
		if q := h.traits.Notices; q != nil {
			if _, full, _ := h.socket.In.Look(q); full {
				return false
			}
		}
		if !h.step() {
			break
		}
	}
	return true
}

// fetchLast fetches for the last time, after the other side has sealed its
// queue. If that side withdraws, its queued messages are dropped instead.
func (h *half) fetchLast() {
	h.fetching.Lock()
	defer h.fetching.Unlock()
	for !h.other.socket.pattern.Withdraws && h.step() {
	}
	h.flows = false
	h.socket.In.Disconnect(&h.pipe.In)
}

// step is one round of Fetch. It reports whether there may be more to fetch now.
func (h *half) step() bool {
	if !h.other.pipe.Out.Exchange(&h.taken) {
		return false
	}
	kept := h.deliver()
	if told := (queue.HWM{Messages: h.taken.Messages, Bytes: h.taken.Bytes()}).Minus(kept); told != (queue.HWM{}) {
		h.Consumed(told, false)
	}
	h.taken.Forget()
	return kept.Messages == 0 || h.eager // otherwise the receiver that empties the inqueue fetches again
}

// Consumed records that messages have left our queue, and whether the queue is
// empty now.
func (h *half) Consumed(n queue.HWM, empty bool) {
	if h.other.pipe.Out.Consumed(n, empty && !h.eager) {
		from := h.other.socket
		from.pattern.Roomy(h.other.pipe)
		from.In.Tell()
	}
}

// deliver puts the fetched messages into the inbox, and returns how much it has
// put there.
func (h *half) deliver() (kept queue.HWM) {
	h.batch.q.Spans = h.socket.In.Spare()
	for i := range h.taken.Items {
		c, size := h.taken.Items[i].Chunk(h.socket.pattern.prepare != nil)
		n := h.decode(c, 0, size)
		c.Release()
		kept.Messages += n.Messages
		kept.Bytes += n.Bytes
	}
	h.socket.In.Recycle(h.batch.q.Spans)
	h.batch.q.Spans = nil
	return kept
}

// decode passes on the messages, and handles the commands, in a range of bytes
// of a chunk. They are complete, and come from our own side.
func (h *half) decode(c *buf.Chunk, at, end int) (kept queue.HWM) {
	c.Retain()
	wire := c.Data()[:end]
	hand := func() {
		n := h.hand(c)
		kept.Messages += n.Messages
		kept.Bytes += n.Bytes
	}
	for at < len(wire) {
		next := queue.MessageEnd(wire, at) // a command is a single frame
		if next < 0 {
			break
		}
		if wire[at]&zmtp.FlagCommand != 0 {
			if h.traits.Subscribed {
				if n := subscriptionMessage(wire[at:next]); n > 0 {
					h.add(at+n, next)
					at = next
					continue
				}
			}
			hand()
			h.command(zmtp.CommandBody(wire[at:next]))
			at = next
			continue
		}
		if next > maxBatchBytes && at > 0 {
			// Spans count in 32 bits: go on in a chunk that begins here.
			hand()
			c = buf.Wrap(wire[at:], c)
			wire, next, at = wire[at:], next-at, 0
		}
		h.add(at, next)
		at = next
	}
	invariants.Assert(at == len(wire), "the queue contains bytes that are not complete messages")
	hand()
	c.Release()
	return kept
}

// add collects a message.
func (h *half) add(start, end int) {
	h.batch.q.Spans = append(h.batch.q.Spans, buf.Span{Start: uint32(start), End: uint32(end)})
	h.bytes += end - start
}

// hand passes the collected messages to the socket, and returns how many it has
// kept.
func (h *half) hand(c *buf.Chunk) (kept queue.HWM) {
	b := &h.batch
	if len(b.q.Spans) == 0 {
		return queue.HWM{}
	}
	bytes := h.bytes
	h.bytes = 0
	h.peer.conduit.MessagesIn.Add(uint64(len(b.q.Spans)))
	h.peer.conduit.BytesIn.Add(uint64(bytes))
	if h.ignore {
		h.peer.conduit.Discard(len(b.q.Spans))
		b.q.Spans = b.q.Spans[:0]
		return queue.HWM{}
	}
	b.q.Chunk, b.q.From = c, &h.peer.conduit
	c.Retain()
	before := len(b.q.Spans)
	wanted, err := h.socket.pattern.Messages(h.pipe, h.peer, b)
	if prepare := h.socket.pattern.prepare; wanted && prepare != nil {
		prepare(b)
	}
	if wanted && len(b.q.Spans) > 0 {
		if len(b.q.Spans) < before || b.q.Chunk != c {
			bytes = b.bytes()
		}
		kept = queue.HWM{Messages: len(b.q.Spans), Bytes: bytes}
		b.q.Cost = bytes
		h.socket.In.Put(&h.pipe.In, &b.q, nil)
	}
	if err != nil {
		h.conn.Close(err)
	}
	b.Release()
	return kept
}

// command handles one command. Commands that concern the connection, such as
// ERROR, do not occur.
func (h *half) command(body []byte) {
	c, err := zmtp.ParseCommand(body)
	if err == nil && !h.ignore {
		if string(c.Name) == zmtp.CommandPing {
			// The answer is passed to the other side directly, not through its
			// queue, which is fetched only when it receives.
			if _, context, e := zmtp.ParsePing(c.Data); e == nil {
				to := h.other
				err = to.socket.pattern.Command(to.pipe, to.peer, zmtp.CommandPong, context)
			}
		} else {
			err = h.socket.pattern.Command(h.pipe, h.peer, string(c.Name), c.Data)
		}
	}
	if err != nil {
		h.conn.Close(err)
	}
}
