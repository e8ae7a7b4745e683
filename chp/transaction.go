package chp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/submit"
	"clustermap/chp/internal/txn"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// Condition is what must hold when the server orders an update: see [Client.SetIf] and
// [Client.ApplyIf]. The zero Condition is none.
type Condition struct {
	c   txn.Condition
	key string
}

// IfAbsent holds if the key does not exist.
func IfAbsent() Condition { return Condition{c: txn.Condition{Kind: txn.KindAbsent}} }

// IfPresent holds if the key exists.
func IfPresent() Condition { return Condition{c: txn.Condition{Kind: txn.KindPresent}} }

// IfSequence holds if the last update of the key has this sequence ([Entry.Sequence]), or, for 0,
// if the key does not exist. It fails if the key was set again since, be it to the same value.
func IfSequence(sequence int64) Condition {
	return Condition{c: txn.Condition{Kind: txn.KindSequence, Sequence: sequence}}
}

// IfValue holds if the key has this value. The condition refers to the slice, until the update
// has ended.
func IfValue(value []byte) Condition {
	return Condition{c: txn.Condition{Kind: txn.KindValue, Value: value}}
}

// On returns the condition for a key. Without it a condition of SetIf and DeleteIf is one on the
// key of the update.
func (c Condition) On(key string) Condition {
	c.key = key
	return c
}

// ConflictError says that a condition did not hold, and nothing was changed.
type ConflictError struct {
	Key string // of the condition

	// Sequence is that of the key's last update, or 0 if the key does not exist.
	Sequence int64

	// Value is the key's value, if the call asks for it (see WithConflictValue), the key exists, the
	// value has at most 64 KiB, and the client does not have megabytes of answers left to read;
	// HasValue says whether it is meant. Otherwise the client's replica has the value, or soon will.
	Value    []byte
	HasValue bool
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Sequence == 0 {
		return fmt.Sprintf("chp: conflict: the key %q does not exist", e.Key)
	}
	return fmt.Sprintf("chp: conflict: the key %q has sequence %d", e.Key, e.Sequence)
}

// ErrNoTransactions is returned for conditions and transactions if the server does not judge
// them: it is of another implementation, an earlier version, or a Clone model below 6.
// Nothing is sent then.
var ErrNoTransactions = submit.ErrNoTransactions

// WithConflictValue asks for ConflictError.Value.
func WithConflictValue() IfOption { return ifFlags(txn.FlagValue) }

// IfOption is an option of [Client.SetIf] and the calls like it: a [Condition], a [SetOption], or
// WithConflictValue.
type IfOption interface{ ifOption() }

type ifFlags byte

func (ifFlags) ifOption()   {}
func (Condition) ifOption() {}
func (SetOption) ifOption() {}

// proposal is a transaction before it has a number.
type proposal struct {
	flags      byte
	conditions []Condition
	set        []SetOption // of a single update
	updates    *Batch

	leases   bool // it is for a server that knows leases only
	attached int  // of the conditions, those of leases, the last ones

	few [2]Condition // memory of conditions
}

// add adds options. It is no method of theirs, so that they need no memory.
func (p *proposal) add(opts []IfOption) {
	for _, o := range opts {
		switch o := o.(type) {
		case Condition:
			if o.c.Kind != 0 {
				p.conditions = append(p.conditions, o)
			}
		case SetOption:
			p.set = append(p.set, o)
		case ifFlags:
			p.flags |= byte(o)
		}
	}
}

// errNoKey is returned by ApplyIf.
var errNoKey = errors.New("chp: a condition of a transaction needs a key: see Condition.On")

// errTransactionSize is returned for a batch that is too large for a transaction.
var errTransactionSize = fmt.Errorf("chp: a transaction has at most %d updates and conditions, and %d bytes of several", txn.MaxUpdates, txn.MaxSize)

// single returns the proposal of one update.
func single(key string, value []byte, opts []IfOption) *proposal {
	p := transaction(new(Batch), opts)
	for i := range p.conditions {
		if p.conditions[i].key == "" {
			p.conditions[i].key = key
		}
	}
	p.updates.add(key, value, p.set)
	p.attach(p.updates.leases)
	return p
}

// check returns an error for a proposal that no server accepts.
func (p *proposal) check() error {
	if err := p.updates.Err(); err != nil {
		return err
	}
	size := p.updates.Size() + p.updates.Len()*(kvmsg.UUIDSize+len(kvmsg.PropertyMore)+len("=1023\n"))
	if n := p.updates.Len(); n > txn.MaxUpdates || len(p.conditions) > txn.MaxConditions || n > 1 && size > txn.MaxSize {
		return errTransactionSize
	}
	for i := range p.conditions {
		c := &p.conditions[i]
		if c.key == "" {
			return errNoKey
		}
		if err := kvmsg.ValidKey(bytesOf(c.key)); err != nil {
			return err
		}
	}
	return nil
}

// appendConditions appends the conditions in wire form, and conditionsSize returns their size.
func (p *proposal) appendConditions(dst []byte) []byte {
	for i := range p.conditions {
		dst = p.conditions[i].wire().Append(dst)
	}
	return dst
}

func (p *proposal) conditionsSize() (n int) {
	for i := range p.conditions {
		n += p.conditions[i].wire().Size()
	}
	return n
}

func (c *Condition) wire() *txn.Condition {
	c.c.Key = bytesOf(c.key)
	return &c.c
}

// appendUpdates appends the updates in wire form, and updatesSize returns their size.
func (p *proposal) appendUpdates(dst, uuid []byte) []byte {
	var space [128]byte
	for i := range p.updates.Len() {
		r := p.updates.record(i)
		props := r.Props()
		if more := p.updates.Len() - 1 - i; more > 0 {
			props = txn.AppendMore(append(space[:0], props...), more)
		}
		dst = kvmsg.AppendRecord(dst, r.Key(), 0, uuid, props, r.Value())
	}
	return dst
}

func (p *proposal) updatesSize(uuid int) (n int) {
	var space [32]byte
	for i := range p.updates.Len() {
		r := p.updates.record(i)
		props := len(r.Props()) + len(txn.AppendMore(space[:0], p.updates.Len()-1-i))
		n += kvmsg.RecordSize(len(r.Key()), uuid, props, len(r.Value()))
	}
	return n
}

// appendRequest appends the request, which the writer completes.
func (p *proposal) appendRequest(dst []byte) []byte {
	conditions, updates := p.conditionsSize(), p.updatesSize(kvmsg.UUIDSize)
	dst = slices.Grow(dst, txn.RequestSize(conditions, updates))
	dst = p.appendConditions(txn.AppendHead(dst, p.flags, conditions))
	dst = zmtp.AppendHeader(dst, 0, updates)
	return p.appendUpdates(dst, noUUID[:])
}

var noUUID [kvmsg.UUIDSize]byte

// outcome returns what an answer means. key returns the key of a condition, of which those behind own
// are of leases.
func outcome(a *txn.Answer, own int, key func(condition int) []byte) (int64, error) {
	switch a.Status {
	case txn.StatusMade:
		return a.Sequence, nil
	case txn.StatusConflict, txn.StatusAbsent:
		if a.Condition >= own {
			return 0, ErrLeaseEnded
		}
		e := &ConflictError{Key: string(key(a.Condition)), Value: a.Value, HasValue: a.Has}
		if a.Status == txn.StatusConflict {
			e.Sequence = a.Sequence
		}
		return 0, e
	case txn.StatusRefused:
		return 0, ledger.RefusedFor(kvmsg.Reason(a.Sequence))
	}
	return 0, ErrUncertain
}

// outcomeOf returns the outcome of a request that has ended.
func outcomeOf(r *submit.Request) (int64, error) {
	a, err := r.Result()
	if err != nil {
		return 0, err
	}
	return outcome(a, r.Own, r.ConditionKey)
}

// SetIf is SetSync under conditions: the server sets the key if all of them hold when it orders
// the update. It returns the update's sequence, or a [*ConflictError], and then nothing was
// changed. Conditions are on the key itself, or on another one with [Condition.On]; without any the
// update is made in any case. SetIf also takes the options of Set.
//
// The server judges the conditions on all updates that come before in its order. When SetIf
// returns, what it was judged against is published, with commit.Always on disk, and in a pair in
// sync at both servers; and the replica shows it, for keys of the client's subtrees, unless the client
// is closed before. Others may be set, too.
//
// The outcome is exact: if a connection breaks, the server ends, or the other one of a pair takes
// over, SetIf waits for the next session, and the update is made once or not at all.
// ErrUncertain is returned only if nobody can know: the next server has another map, or has forgotten the client. If
// the context ends first, the update may still be made, unless it had not been sent.
//
// At a server that does not judge conditions the error is ErrNoTransactions, and nothing is sent.
func (c *Client) SetIf(ctx context.Context, key string, value []byte, opts ...IfOption) (seq int64, err error) {
	if len(value) == 0 {
		return 0, ErrEmptyValue
	}
	return c.propose(ctx, single(key, value, opts))
}

// DeleteIf deletes a key as SetIf sets one. Without conditions it is no error if the key does not exist.
func (c *Client) DeleteIf(ctx context.Context, key string, opts ...IfOption) (seq int64, err error) {
	return c.propose(ctx, single(key, nil, opts))
}

// ApplyIf makes a transaction: the server makes all updates of the batch, in order, or none, and
// only if all conditions hold. Each condition has a key, see [Condition.On]; there need be none.
// The updates have consecutive sequences; ApplyIf returns the first one's. No client sees a part
// of them: not in a snapshot, a watch (see Event.Transaction), a replica, or after a failover.
// A key may occur more than once; conditions are judged before all updates of the batch.
//
// A transaction has at most 1,024 updates with 1 MiB of keys and values. Everything else is as
// with SetIf. With an empty batch ApplyIf only checks the conditions, and returns the sequence of
// the last update before.
func (c *Client) ApplyIf(ctx context.Context, b *Batch, opts ...IfOption) (first int64, err error) {
	seq, err := c.propose(ctx, transaction(b, opts))
	return firstOf(seq, b.Len()), err
}

func transaction(b *Batch, opts []IfOption) *proposal {
	p := &proposal{updates: b}
	p.conditions = p.few[:0]
	p.add(opts)
	p.attach(b.leases)
	return p
}

// attach adds the conditions of the leases to which updates attach their keys.
func (p *proposal) attach(leases []kvmsg.LeaseID) {
	for _, id := range leases {
		p.conditions = append(p.conditions, Condition{c: txn.Condition{Kind: txn.KindPresent}, key: string(kvmsg.AppendLeaseKey(nil, id))})
	}
	p.attached += len(leases)
	p.leases = p.leases || len(leases) > 0
}

// firstOf returns the sequence of the first of n updates, given that of the last one.
func firstOf(last int64, n int) int64 {
	if last == 0 {
		return 0
	}
	return last - int64(max(n-1, 0))
}

// Outcome is the outcome of [Client.StartIf].
type Outcome struct {
	c       *Client
	g       submit.Group
	one     [1]submit.Request
	updates int
}

// Done returns a channel that is closed when the outcome is known.
func (o *Outcome) Done() <-chan struct{} { return o.g.Done }

// Wait waits for the outcome, and returns it as ApplyIf does. If the context ends, the transaction
// is given up if it was not sent yet.
func (o *Outcome) Wait(ctx context.Context) (first int64, err error) {
	seq, err := o.last(ctx)
	return firstOf(seq, o.updates), err
}

// last is Wait, but returns the sequence of the last update.
func (o *Outcome) last(ctx context.Context) (int64, error) {
	if err := o.c.await(ctx, &o.g); err != nil {
		return 0, err
	}
	return outcomeOf(&o.one[0])
}

// StartIf is ApplyIf without the wait for the outcome: it returns when the transaction has a place
// behind all that the client has sent before. So one goroutine can have many on their way, at most 4096. It
// refers to the batch and the conditions only until it returns. Many single updates cost less with
// [Client.ApplyEach].
func (c *Client) StartIf(ctx context.Context, b *Batch, opts ...IfOption) (*Outcome, error) {
	return c.start(ctx, transaction(b, opts))
}

func (c *Client) start(ctx context.Context, p *proposal) (*Outcome, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := c.judges(p.updates.largest, p.leases); err != nil {
		return nil, err
	}
	o := &Outcome{c: c, updates: p.updates.Len()}
	o.g.Requests = o.one[:]
	o.one[0] = p.request(c, p.appendRequest(nil))
	err := c.writer.Requests.Start(ctx, &o.g)
	if err != nil && ctx.Err() != nil {
		err = c.explain(ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// request returns the request of a proposal that is in wire form.
func (p *proposal) request(c *Client, wire []byte) submit.Request {
	r := submit.Request{Wire: wire, Leases: p.leases, Own: len(p.conditions) - p.attached}
	r.Shown = c.shows(&r)
	return r
}

// judges returns an error if no server judges updates of this client with a value of a size.
func (c *Client) judges(largest int, leases bool) error {
	switch {
	case c.maxValue > 0 && largest > c.maxValue:
		return kvmsg.ErrValueTooLarge
	case !c.dialect.Full && leases:
		return ErrNoLeases
	case !c.dialect.Full:
		return ErrNoTransactions
	}
	return nil
}

func (c *Client) propose(ctx context.Context, p *proposal) (int64, error) {
	o, err := c.start(ctx, p)
	if err != nil {
		return 0, err
	}
	return o.last(ctx)
}

// await waits until a group has ended. If the context ends before, it returns that error, which
// those requests get that have not ended.
func (c *Client) await(ctx context.Context, g *submit.Group) error {
	select {
	case <-g.Done:
		return nil
	case <-ctx.Done():
		err := c.explain(ctx.Err())
		c.writer.Requests.Forget(g, err)
		return err
	}
}

// SetIf sets a key as [Client.SetIf] does, in the server's own process. It waits as SetSync does.
func (s *Server) SetIf(ctx context.Context, key string, value []byte, opts ...IfOption) (seq int64, err error) {
	if len(value) == 0 {
		return 0, ErrEmptyValue
	}
	return s.propose(ctx, single(key, value, opts))
}

// DeleteIf deletes a key as [Client.DeleteIf] does.
func (s *Server) DeleteIf(ctx context.Context, key string, opts ...IfOption) (seq int64, err error) {
	return s.propose(ctx, single(key, nil, opts))
}

// ApplyIf makes a transaction as [Client.ApplyIf] does.
func (s *Server) ApplyIf(ctx context.Context, b *Batch, opts ...IfOption) (first int64, err error) {
	seq, err := s.propose(ctx, transaction(b, opts))
	return firstOf(seq, b.Len()), err
}

func (s *Server) propose(ctx context.Context, p *proposal) (int64, error) {
	if err := p.check(); err != nil {
		return 0, err
	}
	if err := s.carries(p.updates); err != nil {
		return 0, err
	}
	if p.leases && !s.dialect.Full {
		return 0, ErrNoLeases
	}
	r := txn.Request{Flags: p.flags}
	r.Conditions, r.Updates = p.appendConditions(nil), p.appendUpdates(nil, s.uuid())
	if err := s.paceFor(ctx, p.updates.Len(), len(r.Updates)); err != nil {
		return 0, err
	}
	a, w, err := s.local.Transact(ctx, &r, s.authorIn(ctx))
	if err == nil {
		err = s.sequencer.Published(ctx, w)
	}
	if err != nil {
		return 0, err
	}
	return outcome(&a, len(p.conditions)-p.attached, func(condition int) []byte { return bytesOf(p.conditions[condition].key) })
}

// uuid returns the UUID of updates in a request: at a node of a cluster it gets another one, as those of clients do.
func (s *Server) uuid() []byte {
	if s.member == nil {
		return nil
	}
	return noUUID[:]
}

// editor is what Update and Add need of a client or a server.
type editor interface {
	Lookup(key string) (Entry, Presence)
	SetIf(ctx context.Context, key string, value []byte, opts ...IfOption) (int64, error)
	DeleteIf(ctx context.Context, key string, opts ...IfOption) (int64, error)
}

// Update changes the value of a key: it calls change with the present value, nil if the key does not
// exist, and sets what that returns; nil deletes the key. If another update comes first, it
// tries again with the new value, so change may be called more than once. After an error of
// change nothing is changed. It returns the sequence of the update.
//
// The key must be in the client's subtrees. The time to live and the properties are those of opts, not those of
// the value before.
func (c *Client) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error), opts ...SetOption) (seq int64, err error) {
	if !c.subtrees.Contains(bytesOf(key)) {
		return 0, outsideSubtrees(key)
	}
	if err := c.WaitActive(ctx); err != nil {
		return 0, err
	}
	return update(ctx, c, key, change, opts)
}

// Update changes the value of a key as [Client.Update] does.
func (s *Server) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error), opts ...SetOption) (seq int64, err error) {
	return update(ctx, s, key, change, opts)
}

func update(ctx context.Context, c editor, key string, change func([]byte) ([]byte, error), opts []SetOption) (int64, error) {
	e, _ := c.Lookup(key)
	value, sequence := e.Value, e.Sequence
	for pause := time.Duration(0); ; {
		next, err := change(value)
		if err != nil {
			return 0, err
		}
		with := []IfOption{IfSequence(sequence), WithConflictValue()}
		var seq int64
		switch {
		case len(next) > 0:
			for _, o := range opts {
				with = append(with, o)
			}
			seq, err = c.SetIf(ctx, key, next, with...)
		case next == nil && value == nil:
			return 0, nil
		default:
			seq, err = c.DeleteIf(ctx, key, with...)
		}
		var conflict *ConflictError
		switch {
		case !errors.As(err, &conflict):
			return seq, err
		case conflict.HasValue || conflict.Sequence == 0:
			value, sequence = conflict.Value, conflict.Sequence
		default: // it is too large for the answer
			if e, _ = c.Lookup(key); e.Sequence == sequence {
				pause = min(pause*2+time.Millisecond, 100*time.Millisecond)
				if !wake.Pause(ctx, pause) {
					return 0, ctx.Err()
				}
			}
			value, sequence = e.Value, e.Sequence
		}
	}
}

// errNotNumber is returned by Add.
var errNotNumber = errors.New("chp: the value is not a decimal number of 64 bits, or the sum is none")

// Add adds n to the decimal number that is the value of a key, 0 if the key does not exist, and
// returns the sum. It keeps no time to live. See Update.
func (c *Client) Add(ctx context.Context, key string, n int64) (sum int64, err error) {
	_, err = c.Update(ctx, key, adder(n, &sum))
	return sum, err
}

// Add adds n to a number as [Client.Add] does.
func (s *Server) Add(ctx context.Context, key string, n int64) (sum int64, err error) {
	_, err = s.Update(ctx, key, adder(n, &sum))
	return sum, err
}

func adder(n int64, sum *int64) func(old []byte) ([]byte, error) {
	return func(old []byte) ([]byte, error) {
		before := int64(0)
		if old != nil {
			var err error
			if before, err = strconv.ParseInt(string(bytes.TrimSpace(old)), 10, 64); err != nil {
				return nil, errNotNumber
			}
		}
		if n > 0 && before > math.MaxInt64-n || n < 0 && before < math.MinInt64-n {
			return nil, errNotNumber
		}
		*sum = before + n
		return strconv.AppendInt(nil, *sum, 10), nil
	}
}
