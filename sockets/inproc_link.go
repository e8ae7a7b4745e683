package sockets

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
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
// while nobody receives, such as a publisher its subscriptions, is eager: there
// the sender itself fetches, so that a subscription is in force when Subscribe
// returns (see pump). If the application is behind, because nobody receives
// from an XPUB, the goroutine that runs the half fetches later.
//
// Fetched messages count as queued at the sender (outbox.held) until the
// application has received them. So the high-water mark of the outbox, the sum
// of those of both sides, limits the two queues together.
//
// Lock order: half.fetching before a pattern's mutex before outbox.mu before
// the other socket's inbox.mu.
type half struct {
	socket *socket
	pipe   *pipe
	peer   *Peer
	conn   *conn
	other  *half
	traits traits
	eager  bool
	ignore bool // discard what the peer sends; changes under fetching

	newcomer *newcomer // the peer, if it had to wait for its identity; otherwise nil

	more chan struct{} // has the goroutine of an eager side fetch; capacity 1, nil for others

	ending *sync.Once // runs part; the two halves share it

	fetching sync.Mutex
	flows    bool // fetch may run: true from begin to fetchLast. fetching guards it and the fields below
	taken    outqueue
	batch    Batch
	bytes    int // of batch
}

// maxBatchBytes limits the bytes to which the spans of one batch refer.
const maxBatchBytes = min(1<<31, math.MaxInt)

// newHalf returns the half of a pipe whose other side is the given socket.
func newHalf(p *pipe, other *socket) *half {
	h := &half{
		socket: p.socket,
		pipe:   p,
		conn:   &conn{gone: make(chan struct{})},
		traits: p.socket.pattern.traits(),
	}
	if h.traits.ordered {
		h.eager, h.more = true, make(chan struct{}, 1)
	}
	info := other.announced()
	h.peer = &Peer{pipe: p, conn: h.conn, info: info, remote: p.endpoint, identity: info.Identity}
	return h
}

// attach makes the other side known to the socket.
func (h *half) attach() {
	refused := h.socket.attach(h.pipe, h.peer)
	h.newcomer, _ = errors.AsType[*newcomer](refused)
	h.ignore = refused != nil // a newcomer is ignored until it is admitted
}

// begin allows fetching. Both sides must be attached.
func (h *half) begin() {
	h.fetching.Lock()
	h.flows = true
	h.fetching.Unlock()
}

// open makes available what this side sends and has queued already.
func (h *half) open() {
	to := h.other
	limits := h.pipe.out.link(to.socket.in.limits, to.socket.conflates()) // the other side's queue is ours
	in := &to.socket.in
	in.mu.Lock()
	to.pipe.in.link = to
	to.pipe.in.report = limits.low().messages
	in.mu.Unlock()
	h.pipe.out.launch(to.notify, nil, false)
}

// plus is the high-water mark of two queues that are one.
func (h hwm) plus(g hwm) hwm {
	sum := func(a, b int) int {
		if a >= unbounded || b >= unbounded {
			return unbounded
		}
		return min(a+b, unbounded)
	}
	return hwm{sum(h.messages, g.messages), sum(h.bytes, g.bytes)}
}

// notify tells the receivers, or our own goroutine if we are eager, that there is
// something to fetch. The other side's outbox.mu is held.
func (h *half) notify() {
	if h.eager {
		h.nudge()
		return
	}
	in := &h.socket.in
	in.mu.Lock()
	in.list(&h.pipe.in)
	in.mu.Unlock()
}

// nudge makes the goroutine of an eager side fetch.
func (h *half) nudge() {
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// run serves the connection until it ends: with the context, because one of the
// sides closes it, or because of a fault.
func (h *half) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { h.conn.close(ErrClosed) })
	defer stop()
	if n := h.newcomer; n != nil && n.wait(0) {
		h.fetching.Lock()
		h.ignore = false
		h.fetching.Unlock()
		h.other.open()
	}
	h.serve()
	h.finish()
	err := &PeerError{h.peer.remote, h.conn.cause(io.EOF)}
	if !h.socket.closes(h.conn, err) {
		h.socket.report(Event{Kind: Disconnected, Endpoint: h.pipe.endpoint, Remote: h.peer.remote, Peer: h.peer, Err: err})
	}
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
		s.conn.close(io.EOF) // has no effect if there is a reason already
		s.pipe.out.seal()
	}
	for _, s := range sides {
		s.fetchLast()
	}
	for _, s := range sides {
		s.pipe.peer.Store(nil)
		s.socket.in.parted()
		if !s.rejected() {
			s.socket.pattern.detach(s.pipe, s.peer)
			if !s.pipe.lasting { // as in libzmq, there is no hiccup message: the connection is not made again
				s.socket.tellEnd(s.pipe, s.peer)
			}
		}
	}
	for _, s := range sides {
		s.pipe.out.discard()
		if !s.pipe.lasting {
			s.socket.leave(s.pipe)
		}
		s.socket.in.watch.tell()
	}
}

// rejected reports whether the peer was never admitted.
func (h *half) rejected() bool {
	if h.newcomer != nil {
		return h.newcomer.routes.giveUp(h.newcomer)
	}
	return h.ignore
}

// serve waits until the connection must end. Meanwhile an eager side fetches
// what pump could not fetch because the application was behind.
func (h *half) serve() {
	if !h.eager {
		<-h.conn.gone
		return
	}
	for {
		select {
		case <-h.more:
			for !h.fetch() {
				if !h.socket.in.settle(h.traits.notices, h.conn.gone) {
					break
				}
			}
		case <-h.conn.gone:
			return
		}
	}
}

// pump makes an eager side fetch what was queued for it: at once, or in its own
// goroutine if the application is behind. The other side calls it after queueing,
// with no lock held.
func (h *half) pump() {
	if !h.fetch() {
		h.nudge() // the goroutine will wait for room
	}
}

// fetch moves what the other side has queued into the inbox: until the inbox
// has a message or, for an eager side, until nothing is left. If it finds
// nothing, the next message will notify this side. It reports false if it has
// stopped early because the application is behind.
func (h *half) fetch() bool {
	h.fetching.Lock()
	defer h.fetching.Unlock()
	for h.flows {
		if q := h.traits.notices; q != nil && h.socket.in.isCrowded(q) {
			return false
		}
		if !h.step() {
			break
		}
	}
	return true
}

// fetchLast fetches for the last time, after the other side has sealed its
// queue. If that side withdraws, what it has queued is dropped instead.
func (h *half) fetchLast() {
	h.fetching.Lock()
	defer h.fetching.Unlock()
	in := &h.socket.in
	if h.other.socket.withdraws {
		in.withdraw(&h.pipe.in)
	} else {
		for h.step() {
		}
	}
	h.flows = false
	in.mu.Lock()
	h.pipe.in.link = nil
	in.mu.Unlock()
}

// step is one round of fetch. It reports whether there may be more to fetch now.
func (h *half) step() bool {
	if !h.exchange() {
		return false
	}
	kept := h.deliver()
	if told := kept.less(hwm{h.taken.messages, h.taken.lent}); told != (hwm{}) {
		h.consumed(told, false)
	}
	h.taken.forget()
	return kept.messages == 0 || h.eager // otherwise the receiver that empties the inqueue fetches again
}

// less returns the part of total that is not in h.
func (h hwm) less(total hwm) hwm { return hwm{total.messages - h.messages, total.bytes - h.bytes} }

// exchange takes what is queued on the other side. It reports false if that is
// nothing.
func (h *half) exchange() bool {
	from := h.other
	if !from.pipe.out.exchange(&h.taken) {
		h.taken.rest()
		return false
	}
	h.taken.endStage()
	from.peer.messagesOut.Add(uint64(h.taken.messages))
	from.peer.bytesOut.Add(uint64(h.taken.lent))
	return true
}

// consumed records that messages have left our queue, and whether the queue is
// empty now.
func (h *half) consumed(n hwm, empty bool) {
	if h.other.pipe.out.consumed(n, empty && !h.eager) {
		from := h.other.socket
		from.pattern.roomy(h.other.pipe)
		from.in.watch.tell()
	}
}

// deliver puts the fetched messages into the inbox, and returns how much it has
// put there.
func (h *half) deliver() (kept hwm) {
	h.batch.spans = h.socket.in.spans()
	for i := range h.taken.items {
		item := &h.taken.items[i]
		var c *buf.Chunk
		if h.socket.opts.Prepare != nil && item.lent() {
			c = buf.Get(len(item.wire)) // Prepare may change the bytes
			copy(c.Data(), item.wire)
			item.release()
		} else {
			c = buf.Wrap(item.wire, item.owner)
		}
		n := h.decode(c, 0, len(item.wire))
		c.Release()
		kept.messages += n.messages
		kept.bytes += n.bytes
	}
	in := &h.socket.in
	in.mu.Lock()
	in.recycle(h.batch.spans)
	in.mu.Unlock()
	h.batch.spans = nil
	return kept
}

// decode passes on the messages, and handles the commands, in a range of bytes
// of a chunk. They are complete, and come from our own side.
func (h *half) decode(c *buf.Chunk, at, end int) (kept hwm) {
	c.Retain()
	wire := c.Data()[:end]
	hand := func() {
		n := h.hand(c)
		kept.messages += n.messages
		kept.bytes += n.bytes
	}
	for at < len(wire) {
		if wire[at]&zmtp.FlagCommand != 0 {
			next := frameEnd(wire, at)
			if next < 0 {
				break
			}
			if h.traits.subscribed {
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
		next := messageEnd(wire, at)
		if next < 0 {
			break
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
	h.batch.spans = append(h.batch.spans, Span{Start: uint32(start), End: uint32(end)})
	h.bytes += end - start
}

// frameEnd returns the end of the frame at offset at of wire, or -1 if it is
// incomplete.
func frameEnd(wire []byte, at int) int {
	if at+2 > len(wire) {
		return -1
	}
	size := uint64(wire[at+1])
	if wire[at]&zmtp.FlagLong == 0 {
		at += 2
	} else {
		if at+9 > len(wire) {
			return -1
		}
		size = binary.BigEndian.Uint64(wire[at+1:])
		at += 9
	}
	if size > uint64(len(wire)-at) {
		return -1
	}
	return at + int(size)
}

// hand passes the collected messages to the socket, and returns how many it has
// kept.
func (h *half) hand(c *buf.Chunk) (kept hwm) {
	b := &h.batch
	if len(b.spans) == 0 {
		return hwm{}
	}
	bytes := h.bytes
	h.bytes = 0
	h.peer.messagesIn.Add(uint64(len(b.spans)))
	h.peer.bytesIn.Add(uint64(bytes))
	if h.ignore {
		h.peer.discarded.Add(uint64(len(b.spans)))
		b.spans = b.spans[:0]
		return hwm{}
	}
	b.chunk, b.peer = c, h.peer
	c.Retain()
	before := len(b.spans)
	wanted, err := h.socket.pattern.messages(h.pipe, h.peer, b)
	if wanted && h.socket.opts.Prepare != nil {
		h.socket.opts.Prepare(b)
	}
	if wanted && len(b.spans) > 0 {
		if len(b.spans) < before || b.chunk != c {
			bytes = b.bytes()
		}
		kept = hwm{len(b.spans), bytes}
		b.cost = bytes
		in := &h.socket.in
		in.mu.Lock()
		in.add(&h.pipe.in, b)
		b.spans = in.reuse()
		in.mu.Unlock()
	}
	if err != nil {
		h.conn.close(err)
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
				err = to.socket.pattern.command(to.pipe, to.peer, zmtp.CommandPong, context)
			}
		} else {
			err = h.socket.pattern.command(h.pipe, h.peer, string(c.Name), c.Data)
		}
	}
	if err != nil {
		h.conn.close(err)
	}
}
