package member

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"clustermap/chp/internal/journal/raft"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/fifo"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// orders has what nodes relay to this one, which orders it while it leads, and answers when it is published.
type orders struct {
	order *order.Sequencer
	tell  func(to uint64, note []byte) bool           // Member.tell
	led   func(context.Context, uint64) (bool, error) // Member.Confirm

	elected func(term uint64) bool       // this node leads in a term, or is about to
	share   func(by string) *order.Share // what somebody may add
	members func() []raft.Member

	arrived  chan struct{} // capacity 1
	answered chan struct{} // capacity 1

	mu      sync.Mutex
	nodes   map[uint64]*relayed
	queue   fifo.Queue[relayedItem]
	answers fifo.Queue[unsent]

	// Of the goroutine that orders.
	spans []buf.Span
	ids   []kvmsg.LeaseID
	left  []time.Duration
}

// relayed is what comes from one node.
type relayed struct {
	run, stream uint64
	next        uint64 // number of the item that is taken next
	ended       bool   // an item of the stream was not ordered: nothing behind it may be
	bytes       int    // in queue
}

type relayedItem struct {
	from uint64
	place
	sent
	malformed bool // as no node sends it
}

type unsent struct {
	to uint64
	place
	body []byte
	when order.Written // kindLeases does not use it
}

func newOrders(m *Member) *orders {
	members := func() []raft.Member {
		select {
		case <-m.attached:
			return m.node.Members()
		default:
			return nil
		}
	}
	return &orders{order: m.o.Order, tell: m.tell, led: m.Confirm, elected: m.elected, share: m.o.Share, members: members, nodes: map[uint64]*relayed{}, arrived: make(chan struct{}, 1), answered: make(chan struct{}, 1)}
}

// take takes an item that a node has relayed, if it is the next one.
func (o *orders) take(from uint64, p place, rest []byte) {
	s, ok := parseSent(rest)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.nodes[from]
	if n == nil {
		if n = o.meet(from); n == nil {
			return
		}
	}
	if p.number == 1 && (p.run != n.run || p.stream > n.stream) {
		n.run, n.stream, n.next, n.ended = p.run, p.stream, 1, false
	}
	if p.run != n.run || p.stream != n.stream || p.number != n.next || n.ended || n.bytes > orderBytes {
		return
	}
	n.next++
	n.bytes += itemBytes + len(s.body)
	o.queue.Push(relayedItem{from: from, place: p, sent: s})
	wake.Signal(o.arrived)
}

// meet returns the place of a node from which nothing has come yet, or nil if it is no member. The places of those that have left are
// free again. mu must be held.
func (o *orders) meet(from uint64) *relayed {
	all := o.members()
	member := func(id uint64) bool {
		return slices.ContainsFunc(all, func(m raft.Member) bool { return m.Node == id })
	}
	maps.DeleteFunc(o.nodes, func(id uint64, n *relayed) bool { return n.bytes == 0 && !member(id) })
	if !member(from) || len(o.nodes) >= maxNodes {
		return nil
	}
	n := new(relayed)
	o.nodes[from] = n
	return n
}

// runOrdering orders what has come, until the context ends.
func (o *orders) runOrdering(ctx context.Context) {
	for {
		o.mu.Lock()
		if o.queue.Len() == 0 {
			o.mu.Unlock()
			select {
			case <-o.arrived:
				continue
			case <-ctx.Done():
				return
			}
		}
		i := o.queue.Pop()
		n := o.nodes[i.from]
		n.bytes -= itemBytes + len(i.body)
		again := n.run != i.run || n.stream != i.stream || n.ended // it comes again
		o.mu.Unlock()
		if again {
			continue
		}
		a := unsent{to: i.from, place: i.place}
		ok := o.do(ctx, &i, &a)
		for !ok && !i.malformed && o.elected(i.term) && wake.Pause(ctx, electedPause) { // others may know of the term before this node has all of those before
			ok = o.do(ctx, &i, &a)
		}
		if ctx.Err() != nil {
			return
		}
		if !ok {
			o.mu.Lock()
			if n.run == i.run && n.stream == i.stream {
				n.ended = true
			}
			o.mu.Unlock()
			continue
		}
		o.mu.Lock()
		o.answers.Push(a)
		o.mu.Unlock()
		wake.Signal(o.answered)
	}
}

// do orders what is in an item. It returns false if this node does not order updates in the term.
func (o *orders) do(ctx context.Context, i *relayedItem, a *unsent) bool {
	switch i.kind {
	case kindUpdates:
		return o.updates(ctx, i, a)
	case kindRequests:
		return o.requests(ctx, i, a)
	case kindLeases:
		return o.leases(i, a)
	}
	i.malformed = true
	return false
}

// updates orders updates. It returns false if this node does not lead in the term.
func (o *orders) updates(ctx context.Context, i *relayedItem, a *unsent) bool {
	spans, ok := kvmsg.SpansOf(i.body, o.spans[:0])
	if !ok {
		i.malformed = true
		return false
	}
	o.spans = spans
	from := order.From{ID: i.client, Numbered: true, By: i.by, Share: o.share(i.by)}
	for {
		unfit, repeated, w, ok, led := o.order.Relayed(i.term, i.body, spans, from)
		if !led {
			return false
		}
		if ok {
			a.when, a.body = w, append(a.body, byte(min(repeated, 1)))
			for _, u := range unfit {
				a.body = binary.BigEndian.AppendUint32(a.body, uint32(u.Reason)<<reasonShift|uint32(u.At))
			}
			return true
		}
		if o.order.Room(ctx) != nil {
			return false
		}
	}
}

// requests judges requests.
func (o *orders) requests(ctx context.Context, i *relayedItem, a *unsent) bool {
	o.spans = o.spans[:0]
	for at := 0; at < len(i.body); {
		size := txn.SizeOf(i.body[at:])
		if size == 0 {
			i.malformed = true
			return false
		}
		o.spans = append(o.spans, buf.Span{Start: uint32(at), End: uint32(at + size)})
		at += size
	}
	from := order.From{ID: i.client, Numbered: true, By: i.by, Share: o.share(i.by), Generation: i.generation}
	for spans := o.spans; len(spans) > 0; {
		if o.order.Room(ctx) != nil {
			return false
		}
		var n int
		var led bool
		a.body, a.when, n, led = o.order.RelayedRequests(i.term, i.body, spans, from, max(0, answerBytes-len(a.body)), a.body)
		if !led {
			return false
		}
		spans = spans[n:]
	}
	return true
}

// leases answers a question about leases.
func (o *orders) leases(i *relayedItem, a *unsent) bool {
	const size = len(kvmsg.LeaseID{})
	if len(i.body) < 1 || (len(i.body)-1)%size != 0 {
		i.malformed = true
		return false
	}
	o.ids, o.left = o.ids[:0], o.left[:0]
	for b := i.body[1:]; len(b) > 0; b = b[size:] {
		o.ids = append(o.ids, kvmsg.LeaseID(b))
	}
	left, led := o.order.RelayedLeases(i.term, wire.LeaseKind(i.body[0]), o.ids, o.left)
	o.left = left
	for _, l := range left {
		a.body = binary.BigEndian.AppendUint64(a.body, uint64(l))
	}
	return led
}

// runAnswering answers when what the answers say is published, until the context ends. What is said of leases, and of requests
// that were not made, is so if this node still led after it had looked.
func (o *orders) runAnswering(ctx context.Context) {
	for {
		o.mu.Lock()
		var all []unsent
		for range o.answers.Len() {
			all = append(all, o.answers.Pop())
		}
		o.mu.Unlock()
		if len(all) == 0 {
			select {
			case <-o.answered:
				continue
			case <-ctx.Done():
				return
			}
		}
		asked, led := uint64(0), false // the term for which the others were asked, and what they say
		for i := range all {
			a := &all[i]
			sequence := a.when.Last
			if a.kind != kindLeases && o.order.Published(ctx, a.when) != nil {
				continue // the term has ended: the node relays it to the next leader
			}
			if a.kind == kindLeases || a.kind == kindRequests && !txn.AllMade(a.body) {
				if asked != a.term {
					var err error
					if led, err = o.led(ctx, a.term); err != nil {
						return
					}
					asked = a.term
				}
				if !led {
					continue
				}
			}
			note := appendPlace(make([]byte, 0, noteHead+8+len(a.body)), noteAnswer, a.place)
			note = binary.BigEndian.AppendUint64(note, uint64(sequence))
			o.tell(a.to, append(note, a.body...))
		}
	}
}
