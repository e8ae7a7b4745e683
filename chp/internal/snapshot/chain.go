package snapshot

import (
	"context"
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// chain is one snapshot, or one tail: the messages for all clients that request the same keys of
// one cut, or what came after the same sequence. It is a sequence of parcels, each beginning where the previous one ends. The
// first client to reach a parcel encodes it. While there is memory, the parcel is kept
// for the clients that have not reached it; otherwise it is encoded again.
type chain struct {
	snapshots *Server
	want      wire.Want
	of        subtree.Set // of a tail
	cut       *pinnedCut

	// The records, if scan has listed them. Otherwise they are the records of the cut that
	// match want.
	listed bool
	list   []store.Position
	size   int // bytes of the records, if listed

	// Guarded by Server.mu.
	members map[*answer]bool  // answers that are not complete
	parcels map[place]*parcel // by where they begin
	encoded bool              // the last parcel was encoded
}

// place is a position in a chain: the index of the next record in list or, without a
// list, its position in the cut; or one of the constants below.
type place uint64

const (
	atKTHXBAI place = 1<<64 - 2 // only KTHXBAI is missing
	atEnd     place = 1<<64 - 1
)

func newChain(n *Server, w wire.Want, pinned *pinnedCut) *chain {
	if w.Since {
		of := subtree.New(w.Specs())
		return &chain{snapshots: n, want: w, of: of, cut: pinned, members: map[*answer]bool{}, parcels: map[place]*parcel{}}
	}
	return &chain{snapshots: n, want: w, cut: pinned, members: map[*answer]bool{}, parcels: map[place]*parcel{}}
}

// listBytes returns the memory of list.
func (c *chain) listBytes() int { return cap(c.list) * 8 }

// records calls f for the records from a place on, until f returns false or the context
// ends.
func (c *chain) records(ctx context.Context, from place, f func(r kvmsg.Record, at place, in store.Position) bool) {
	switch {
	case from >= atKTHXBAI:
	case c.listed:
		for i := from; i < place(len(c.list)); i++ {
			if !f(c.cut.Record(c.list[i]), i, c.list[i]) {
				return
			}
		}
	default:
		tree, look := c.want.Subtree, 0
		c.cut.From(store.Position(from), func(r kvmsg.Record, at store.Position) bool {
			if look++; look%4096 == 0 && ctx.Err() != nil {
				return false
			}
			key := r.Key()
			if c.want.Since {
				return !c.of.Contains(key) || f(r, place(at), at)
			}
			if len(key) >= len(tree) && string(key[:len(tree)]) == tree {
				return f(r, place(at), at)
			}
			return true
		})
	}
}

// encode encodes the messages from p.at on into p, about size bytes of them, or lends p up
// to run bytes of the log, if it has as many in one run. It waits for memory as joiner.await
// does.
func (c *chain) encode(ctx context.Context, j *joiner, p *parcel, size, run int) error {
	lendFrom := lendRecord
	if size <= buf.Small {
		lendFrom = lendShort
	}
	first, from := c.lend(ctx, p, lendFrom, run)
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.lent != nil {
		return nil
	}
	if c.listed && p.at == 0 {
		size = min(size, c.size+kvmsg.AgedGrowth*len(c.list)+c.want.EndSize())
	}
	if err := c.snapshots.allocate(ctx, j, p, max(size, len(first)+kvmsg.AgedGrowth, c.want.EndSize())); err != nil {
		return err
	}
	out := p.chunk.Data()[:0]
	if first != nil {
		c.records(ctx, from, func(r kvmsg.Record, at place, _ store.Position) bool {
			if len(out)+len(r)+kvmsg.AgedGrowth > cap(out) || c.want.Full && len(r) >= lendFrom && at != from {
				p.next = at
				return false
			}
			var left time.Duration
			if c.want.Full {
				left = c.cut.deadlines.Remaining(r)
			}
			out = c.want.AppendRecord(out, r, left)
			p.messages++
			return true
		})
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if p.next == atKTHXBAI && len(out)+c.want.EndSize() <= cap(out) {
		out = c.want.AppendEnd(out, &c.cut.end)
		p.messages++
		p.next = atEnd
	}
	p.wire = out
	c.snapshots.Counted.EncodedBytes.Add(int64(len(out)))
	return nil
}

// lend lends p the records from p.at on, as long as they follow each other in the log and are
// sent as they are there, if they have at least least bytes together and not many more than
// most. In any case it returns the first record, or nil if there is none, and its place, and
// sets p.next to where p ends if it is lent, and otherwise to the end of the chain.
func (c *chain) lend(ctx context.Context, p *parcel, least, most int) (first kvmsg.Record, from place) {
	var run store.Piece
	p.next = atKTHXBAI
	c.records(ctx, p.at, func(r kvmsg.Record, at place, pos store.Position) bool {
		if first == nil {
			first, from = r, at
		}
		if !c.want.Full || c.cut.deadlines.Remaining(r) != 0 || run.Records > 0 && run.Size()+len(r) > most {
			return false
		}
		next := c.cut.Piece(pos, len(r))
		if run.Records == 0 {
			run = next
		} else if !run.Join(next) {
			return false
		}
		p.next = at + 1
		return true
	})
	if run.Size() < least {
		p.next = atKTHXBAI
		return first, from
	}
	p.wire, p.messages, p.lent = run.Wire(), run.Records, run.Segment
	p.lent.Retain()
	return first, from
}

// acquire returns the parcel at a place, and encodes it if necessary. The caller gets
// one use of it and must end that with free.
func (c *chain) acquire(ctx context.Context, j *joiner, at place) (*parcel, error) {
	n := c.snapshots
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		p := c.parcels[at]
		if p == nil {
			return c.make(ctx, j, at)
		}
		if p.made {
			n.use(p)
			c.passed(p)
			return p, nil
		}
		done := p.done
		n.mu.Unlock()
		err := j.await(ctx, done)
		n.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// make encodes the parcel for acquire. It is called and returns with Server.mu
// held, and unlocks it while it encodes.
func (c *chain) make(ctx context.Context, j *joiner, at place) (*parcel, error) {
	n := c.snapshots
	p := &parcel{chain: c, at: at, uses: 1, cached: true, done: make(chan struct{})}
	c.parcels[at] = p
	size, run := parcelSize(j.limit()), parcelSize(j.window)
	n.mu.Unlock()
	err := c.encode(ctx, j, p, size, run)
	n.mu.Lock()
	close(p.done)
	if err != nil {
		n.uncache(p)
		n.free(p)
		return nil, err
	}
	p.made, p.takers = true, len(c.members)
	c.encoded = c.encoded || p.next == atEnd
	c.passed(p)
	return p, nil
}

// passed records that one more client has acquired p, and uncaches p after the last
// one.
func (c *chain) passed(p *parcel) {
	if p.takers--; p.takers <= 0 {
		c.snapshots.uncache(p)
	}
}
