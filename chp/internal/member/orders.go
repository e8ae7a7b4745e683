package member

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

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
	tell  func(to uint64, note []byte) bool // Member.tell
	index func(context.Context) error       // returns when this node has all that was committed before, and led

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
	bytes       int    // in queue
}

type relayedItem struct {
	from uint64
	place
	sent
}

type unsent struct {
	to uint64
	place
	body []byte
	when order.Written // kindLeases does not use it
}

func newOrders(q *order.Sequencer, tell func(uint64, []byte) bool, index func(context.Context) error) *orders {
	return &orders{order: q, tell: tell, index: index, nodes: map[uint64]*relayed{}, arrived: make(chan struct{}, 1), answered: make(chan struct{}, 1)}
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
		if len(o.nodes) >= maxNodes {
			return
		}
		n = new(relayed)
		o.nodes[from] = n
	}
	if p.number == 1 && (p.run != n.run || p.stream > n.stream) {
		n.run, n.stream, n.next = p.run, p.stream, 1
	}
	if p.run != n.run || p.stream != n.stream || p.number != n.next || n.bytes > orderBytes {
		return
	}
	n.next++
	n.bytes += itemBytes + len(s.body)
	o.queue.Push(relayedItem{from, p, s})
	wake.Signal(o.arrived)
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
		again := n.run != i.run || n.stream != i.stream // it comes again
		o.mu.Unlock()
		if again {
			continue
		}
		a := unsent{to: i.from, place: i.place}
		ok := false
		switch i.kind {
		case kindUpdates:
			ok = o.updates(ctx, &i, &a)
		case kindRequests:
			ok = o.requests(ctx, &i, &a)
		case kindLeases:
			ok = o.leases(&i, &a)
		}
		if ctx.Err() != nil {
			return
		}
		if !ok { // nothing behind it may be taken
			o.mu.Lock()
			if n.run == i.run && n.stream == i.stream {
				n.next = 0
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

// updates orders updates. It returns false if this node does not lead in the term.
func (o *orders) updates(ctx context.Context, i *relayedItem, a *unsent) bool {
	spans, ok := kvmsg.SpansOf(i.body, o.spans[:0])
	if !ok {
		return false
	}
	o.spans = spans
	from := order.From{ID: i.client, Numbered: true, By: i.by}
	for {
		unfit, repeated, w, ok, led := o.order.Relayed(i.term, i.body, spans, from)
		if !led {
			return false
		}
		if ok {
			a.when, a.body = w, append(a.body, byte(min(repeated, 1)))
			for _, n := range unfit {
				a.body = binary.BigEndian.AppendUint32(a.body, uint32(n))
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
			return false
		}
		o.spans = append(o.spans, buf.Span{Start: uint32(at), End: uint32(at + size)})
		at += size
	}
	from := order.From{ID: i.client, Numbered: true, By: i.by}
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

// runAnswering answers when what the answers say is published, until the context ends. What is said of leases is
// so if this node still led after it had looked: otherwise another one may have let them end.
func (o *orders) runAnswering(ctx context.Context) {
	for {
		o.mu.Lock()
		n := o.answers.Len()
		var all []unsent
		for range n {
			all = append(all, o.answers.Pop())
		}
		o.mu.Unlock()
		if n == 0 {
			select {
			case <-o.answered:
				continue
			case <-ctx.Done():
				return
			}
		}
		led := uint64(0) // the term in which this node led after the last one was ordered
		for i := range all {
			a := &all[i]
			sequence := a.when.Last
			if a.kind == kindLeases {
				if sequence = 0; led != a.term {
					if o.index(ctx) != nil {
						return
					}
					if !o.order.Leads(a.term) {
						continue
					}
					led = a.term
				}
			} else if o.order.Published(ctx, a.when) != nil {
				continue // the term has ended: the node relays it to the next leader
			}
			note := appendPlace(make([]byte, 0, noteHead+8+len(a.body)), noteAnswer, a.place)
			note = binary.BigEndian.AppendUint64(note, uint64(sequence))
			o.tell(a.to, append(note, a.body...))
		}
	}
}
