package chp

import (
	"context"
	"errors"
	"slices"

	"clustermap/chp/internal/submit"
	"clustermap/chp/internal/txn"
	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// BatchIf is a list of updates for one call of [Client.ApplyEach], each with conditions of its own: the
// server judges each by itself, as with [Client.SetIf]. Many updates in one call cost much less
// than a call for each. The zero BatchIf is empty and ready to use. After Reset its memory is used
// again, so a BatchIf that is reused does not allocate for each update.
//
// Set and Delete do not return an error. ApplyEach returns the first error that they had, and then
// sends nothing.
//
// A BatchIf is not safe for concurrent use.
type BatchIf struct {
	wire    []byte // requests
	added   []added
	group   submit.Group
	largest int   // bytes of the largest value
	leases  bool  // some keys are attached to leases
	err     error // the first one of Set and Delete
	applied int   // that many have an outcome

	proposal proposal // memory of add
}

// added is an update of a BatchIf: where its request ends in wire, and its conditions, of which
// those of leases come last.
type added struct {
	end      int
	own      int
	attached int
}

// Set adds an update of a key. The rules for key, value and options are those of [Client.SetIf]. Set does
// not retain them.
func (b *BatchIf) Set(key string, value []byte, opts ...IfOption) {
	if len(value) == 0 {
		b.fail(ErrEmptyValue)
		return
	}
	b.add(key, value, opts)
}

// Delete adds the deletion of a key.
func (b *BatchIf) Delete(key string, opts ...IfOption) { b.add(key, nil, opts) }

func (b *BatchIf) add(key string, value []byte, opts []IfOption) {
	if err := b.tryAdd(key, value, opts); err != nil {
		b.fail(err)
	}
}

func (b *BatchIf) tryAdd(key string, value []byte, opts []IfOption) error {
	p := &b.proposal
	p.flags, p.conditions, p.set, p.attached = 0, p.conditions[:0], p.set[:0], 0
	p.add(opts)
	for i := range p.conditions {
		if c := &p.conditions[i]; c.key == "" {
			c.key = key
		} else if err := kvmsg.ValidKey(bytesOf(c.key)); err != nil {
			return err
		}
	}
	if err := kvmsg.ValidUpdate(bytesOf(key), value); err != nil {
		return err
	}
	var space [128]byte // on the stack
	props, err := appendOptions(space[:0], p.set)
	if err != nil {
		return err
	}
	for _, o := range p.set {
		if o.kind == optionLease {
			p.attach([]kvmsg.LeaseID{o.lease})
		}
	}
	if len(p.conditions) > txn.MaxConditions {
		return errTransactionSize
	}
	conditions, update := p.conditionsSize(), kvmsg.RecordSize(len(key), kvmsg.UUIDSize, len(props), len(value))
	b.wire = p.appendConditions(txn.AppendHead(slices.Grow(b.wire, txn.RequestSize(conditions, update)), p.flags, conditions))
	b.wire = kvmsg.AppendUpdate(zmtp.AppendHeader(b.wire, 0, update), bytesOf(key), 0, 0, 0, props, value)
	b.added = append(b.added, added{len(b.wire), len(p.conditions) - p.attached, p.attached})
	b.leases = b.leases || p.attached > 0
	b.largest = max(b.largest, len(value))
	return nil
}

func (b *BatchIf) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Len returns the number of updates.
func (b *BatchIf) Len() int { return len(b.added) }

// Reset removes all updates, outcomes and errors. It keeps the memory for new updates.
func (b *BatchIf) Reset() {
	b.wire, b.added, b.largest, b.leases, b.err, b.applied = b.wire[:0], b.added[:0], 0, false, nil, 0
}

// errNotApplied is returned by Outcome.
var errNotApplied = errors.New("chp: the update was not applied: see Client.ApplyEach")

// Outcome returns what has become of the update with index i in the last call of ApplyEach, as SetIf
// does: its sequence, or a [*ConflictError] or another error.
func (b *BatchIf) Outcome(i int) (seq int64, err error) {
	if i >= b.applied {
		return 0, errNotApplied
	}
	return outcomeOf(&b.group.Requests[i])
}

// ApplyEach makes each update of a batch as SetIf and DeleteIf do, in order, and waits for all
// outcomes, which [BatchIf.Outcome] returns then. It returns nil if all updates were made, and otherwise the first
// error among the outcomes, such as a [*ConflictError]; the others are made or not, whatever
// it is. A later update is judged on those before it. Updates of others may come in between, and
// others may be seen before the last one is made: ApplyIf makes all or none.
//
// A batch may have any number of updates: at most 4096 of a client are on their way at once, and the
// others follow. If the context ends, updates that were not sent are not made, and the outcomes of those that were
// are unknown; the error of all these is that of the context.
//
// If the batch has an error, or the server does not judge conditions, nothing is sent, and no update has an
// outcome.
func (c *Client) ApplyEach(ctx context.Context, b *BatchIf) error {
	b.applied = 0
	err := b.err
	if err == nil {
		err = c.judges(b.largest, b.leases)
	}
	if err != nil {
		return err
	}
	some := b.group.Requests[:0]
	start := 0
	for _, u := range b.added {
		r := submit.Request{Wire: b.wire[start:u.end:u.end], Leases: u.attached > 0, Own: u.own}
		r.Shown = c.shows(&r)
		some = append(some, r)
		start = u.end
	}
	b.group.Requests = some
	_ = c.writer.Requests.Start(ctx, &b.group) // what it could not send has the error, too
	_ = c.await(ctx, &b.group)
	b.applied = len(some)
	for i := range some {
		if some[i].Failed() {
			_, err := outcomeOf(&some[i])
			return err
		}
	}
	return nil
}

// shows reports whether the client's replica has all keys of a request, without those of leases, which
// most replicas do not have.
func (c *Client) shows(one *submit.Request) bool {
	if c.subtrees.All() {
		return true
	}
	var r txn.Request
	r.Parse(one.Wire)
	var condition txn.Condition
	for rest, n := r.Conditions, 0; n < one.Own; n++ {
		if rest, _ = condition.Next(rest); !c.subtrees.Contains(condition.Key) {
			return false
		}
	}
	for _, one := range r.Records() {
		if !c.subtrees.Contains(one.Key()) {
			return false
		}
	}
	return true
}
