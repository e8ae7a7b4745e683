//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermap/chp"
)

// Keys that are changed under conditions only. Most replicas have all of them, some one account
// alone, and only those of the whole map have journalKey, which each transaction sets.
const (
	condSubtree = "/x/"
	sumKey      = "/x/sum" // a decimal number, by Client.Add
	lockKey     = "/x/lock"
	journalKey  = "/y/journal"
	accounts    = 4
	funds       = 1000 // of all accounts together
)

func accountKey(i int) string { return fmt.Sprintf("%sa%d", condSubtree, i) }

// sumBase is what is added to the number at sumKey, to be told from the ID of an operation.
const sumBase = 1 << 40

// valueOf returns what a value of a key stands for: an operation, by its ID, or a sum.
func valueOf(key string, value []byte) (uint64, error) {
	if key != sumKey {
		return readValue(value)
	}
	n, err := strconv.ParseUint(string(value), 10, 32)
	return sumBase + n, err
}

// condition of an operation. Values are of one operation each, so a condition on the sequence
// or the value is one on the operation that made it.
type condition string

const (
	condSame condition = "same" // the key has the value op.Expect, or does not exist if that is 0
	condAdd  condition = "add"  // none: the update adds 1 to what is there
)

// holder is one goroutine that makes updates under conditions.
type holder struct {
	writer
}

func (w *holder) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.step()
		sleep(ctx, time.Duration(w.rng.ExpFloat64()*float64(w.pause)))
	}
}

func (w *holder) step() {
	patience := 3 * time.Second
	if w.rng.IntN(10) == 0 {
		patience = time.Duration(1+w.rng.IntN(80)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l := w.replica.now()
	l.checkCut(w.replica.history)
	switch n := w.rng.IntN(100); {
	case n < 30:
		w.transfer(ctx, l)
	case n < 50:
		w.count(ctx, l)
	case n < 62:
		w.add(ctx, l)
	case n < 80:
		w.once(ctx, l)
	case n < 95:
		w.lock(ctx, l)
	default: // requests go behind it
		w.set(ctx, l, fmt.Sprintf("%splain%d", condSubtree, w.proc), 0)
	}
}

// present is what a replica has at a key.
type present struct {
	id    uint64
	seq   int64
	value []byte
}

func (w *holder) lookup(l *life, key string) (p present) {
	if e, is := l.client.Lookup(key); is == chp.PresenceFound {
		id, err := valueOf(key, e.Value)
		if err != nil {
			w.replica.history.violate("mangled", "%s: Lookup(%q): %v", l.name, key, err)
		}
		p = present{id, e.Sequence, slices.Clone(e.Value)}
	}
	return p
}

// same returns the condition that a key is as it was, in one of the ways to say so.
func (w *holder) same(key string, p present) chp.Condition {
	switch n := w.rng.IntN(3); {
	case p.id == 0 && n > 0:
		return chp.IfAbsent().On(key)
	case n == 0 && p.id != 0:
		return chp.IfValue(p.value).On(key)
	}
	return chp.IfSequence(p.seq).On(key)
}

// change makes an update of one key under the condition that the key is as it was.
func (w *holder) change(ctx context.Context, l *life, o *op, was present, ttl time.Duration) *op {
	o.Proc, o.Client, o.If, o.Expect, o.ExpectSeq, o.TTL = w.proc, l.name, condSame, was.id, was.seq, ttl
	w.replica.history.call(o)
	opts := []chp.IfOption{w.same(o.Key, was), chp.WithConflictValue()}
	if ttl > 0 {
		opts = append(opts, chp.WithTTL(ttl))
	}
	before := sessions(l.client)
	var seq int64
	var err error
	if o.Kind == opDelete {
		seq, err = l.client.DeleteIf(ctx, o.Key, opts...)
	} else {
		seq, err = l.client.SetIf(ctx, o.Key, w.value(o.ID), opts...)
	}
	w.conclude(l, []*op{o}, seq, err, before)
	return o
}

// conclude notes how a transaction of some operations ended. It compares the replica at once.
func (w *holder) conclude(l *life, ops []*op, first int64, err error, before uint64) {
	h := w.replica.history
	now := h.now()
	var conflict *chp.ConflictError
	if errors.Is(err, chp.ErrNoTransactions) {
		h.violate("judged", "%s: %v", l.name, err)
	}
	shown := !slices.ContainsFunc(ops, func(o *op) bool { return !holds(l.subtrees, o.Key) })
	lost := false // the condition that does not hold has come
	for i, o := range ops {
		o.Return = now
		switch {
		case !errors.As(err, &conflict):
			seq := int64(0)
			if err == nil {
				seq = first + int64(i)
			}
			w.finish(o, seq, err)
			if err == nil && shown {
				o.Saw, o.Looked = w.lookup(l, o.Key).id, true
			}
		case o.If == "" || lost:
			o.Outcome, o.Err = failed, err.Error()
		case o.Key != conflict.Key: // it was judged before the other one
			o.Outcome, o.Err, o.Saw, o.PresentSeq, o.Held = conflicted, err.Error(), o.Expect, o.ExpectSeq, true
		default:
			lost = true
			o.Outcome, o.Err, o.PresentSeq = conflicted, err.Error(), conflict.Sequence
			if conflict.HasValue {
				id, bad := valueOf(o.Key, conflict.Value)
				if bad != nil {
					h.violate("mangled", "%s: conflict at %q: %v", l.name, o.Key, bad)
				}
				o.Saw = id
			}
			if (conflict.Sequence != 0) != conflict.HasValue {
				h.violate("conflict", "%s: %q: sequence %d, and a value: %v", l.name, o.Key, conflict.Sequence, conflict.HasValue)
			}
			if shown {
				o.Shown, o.Looked = w.lookup(l, o.Key).seq, true
			}
		}
	}
	for _, o := range ops {
		o.Looked = o.Looked && !l.ended.Load() // a closed client returns what it knows, and its replica stands still
		o.Synced = sessions(l.client) != before
	}
	if conflict != nil && !lost {
		h.violate("conflict", "%s: %v, and there is no such condition", l.name, err)
	}
}

// count adds to a counter, and does so again after a conflict.
func (w *holder) count(ctx context.Context, l *life) {
	key := fmt.Sprintf("%sn%d", condSubtree, w.rng.IntN(2))
	was := w.lookup(l, key)
	for range 3 {
		o := w.change(ctx, l, &op{Kind: opSet, Key: key, Amount: w.replica.history.amount(was.id) + 1}, was, 0)
		if o.Outcome != conflicted || o.Saw == 0 {
			return
		}
		was = present{id: o.Saw, seq: o.PresentSeq}
		if was.value = w.lookup(l, key).value; !w.isValue(was) {
			return
		}
	}
}

// isValue reports whether the value of a present belongs to its ID.
func (w *holder) isValue(p present) bool {
	id, err := readValue(p.value)
	return err == nil && id == p.id
}

func (w *holder) add(ctx context.Context, l *life) {
	h := w.replica.history
	o := h.call(&op{Proc: w.proc, Client: l.name, Kind: opSet, If: condAdd, Key: sumKey})
	sum, err := l.client.Add(ctx, sumKey, 1)
	w.finish(o, 0, err)
	if err == nil {
		o.Value = sumBase + uint64(sum)
	}
}

// once creates a key that others create too, or deletes it.
func (w *holder) once(ctx context.Context, l *life) {
	key := fmt.Sprintf("%sonce%d", condSubtree, w.rng.IntN(3))
	ttl := time.Duration(0)
	if w.rng.IntN(4) == 0 {
		ttl = time.Duration(20+w.rng.IntN(600)) * time.Millisecond
	}
	if was := w.lookup(l, key); was.id != 0 && w.rng.IntN(2) == 0 {
		w.change(ctx, l, &op{Kind: opDelete, Key: key}, was, 0)
		return
	}
	w.change(ctx, l, &op{Kind: opSet, Key: key}, present{}, ttl)
}

// lock takes a lock, and gives it back. If its holder has given it up, another one breaks it.
func (w *holder) lock(ctx context.Context, l *life) {
	h := w.replica.history
	o := w.change(ctx, l, &op{Kind: opSet, Key: lockKey}, present{}, 0)
	switch {
	case o.Outcome == conflicted && h.abandoned(o.Saw):
		if was := w.lookup(l, lockKey); was.id == o.Saw {
			w.change(ctx, l, &op{Kind: opDelete, Key: lockKey}, was, 0)
		}
		return
	case o.Outcome != acked:
		h.release(o)
		return
	}
	sleep(ctx, time.Duration(w.rng.IntN(8))*time.Millisecond)
	h.release(o)
	d := h.call(&op{Proc: w.proc, Client: l.name, Kind: opDelete, Key: lockKey, If: condSame, Expect: o.ID, ExpectSeq: o.Seq})
	before := sessions(l.client)
	seq, err := l.client.DeleteIf(ctx, lockKey, chp.IfSequence(o.Seq), chp.WithConflictValue())
	w.conclude(l, []*op{d}, seq, err, before)
}

// transfer moves an amount from one account to another, or opens all of them.
func (w *holder) transfer(ctx context.Context, l *life) {
	h := w.replica.history
	var was [accounts]present
	there := 0
	for i := range was {
		if was[i] = w.lookup(l, accountKey(i)); was[i].id != 0 {
			there++
		}
	}
	var ops []*op
	one := func(i int, amount int64) {
		ops = append(ops, &op{Proc: w.proc, Client: l.name, Kind: opSet, Key: accountKey(i), If: condSame, Expect: was[i].id, ExpectSeq: was[i].seq, Amount: amount})
	}
	switch there {
	case 0:
		for i := range accounts {
			one(i, funds/accounts)
		}
	case accounts:
		some, amount := w.rng.Perm(accounts), int64(w.rng.IntN(20)-10)
		from, to := some[0], some[1]
		one(from, h.amount(was[from].id)-amount)
		one(to, h.amount(was[to].id)+amount)
	default:
		return // the accounts were looked up one after the other
	}
	ops = slices.Insert(ops, w.rng.IntN(len(ops)+1), &op{Proc: w.proc, Client: l.name, Kind: opSet, Key: journalKey})
	h.call(ops...)
	var b chp.Batch
	opts := []chp.IfOption{chp.WithConflictValue()}
	for _, o := range ops {
		b.Set(o.Key, w.value(o.ID))
		if o.If != "" {
			i := slices.IndexFunc(was[:], func(p present) bool { return p.seq == o.ExpectSeq })
			opts = append(opts, w.same(o.Key, was[i]))
		}
	}
	before := sessions(l.client)
	first, err := l.client.ApplyIf(ctx, &b, opts...)
	w.conclude(l, ops, first, err, before)
}

// amount returns the amount of an operation.
func (h *history) amount(id uint64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == 0 || id > uint64(len(h.ops)) {
		return 0
	}
	return h.ops[id-1].Amount
}

// release notes that the holder of a lock gives it up, or does not know whether it has it.
func (h *history) release(o *op) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Released = now
}

// abandoned reports whether the holder of a lock has given it up.
func (h *history) abandoned(id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return id != 0 && id <= uint64(len(h.ops)) && h.ops[id-1].Released != 0
}

// checkAccounts: the accounts are there together, and have all funds. The watch's reader calls it
// when it has seen everything that is queued.
func (l *life) checkAccounts(h *history) {
	h.checkAccounts("the watch of "+l.name, l.content)
}

// checkCut: the same is true of a replica at every moment.
func (l *life) checkCut(h *history) {
	content := map[string]uint64{}
	for e := range l.client.Prefix(condSubtree + "a") {
		id, err := readValue(e.Value)
		if err != nil {
			h.violate("mangled", "%s: %q: %v", l.name, e.Key, err)
		}
		content[string(e.Key)] = id
	}
	h.checkAccounts(l.name, content)
}

func (h *history) checkAccounts(where string, content map[string]uint64) {
	there, sum := 0, int64(0)
	var all []string
	for i := range accounts {
		if id := content[accountKey(i)]; id != 0 {
			there++
			amount := h.amount(id)
			sum += amount
			all = append(all, fmt.Sprintf("%q has %d of %d", accountKey(i), amount, id))
		}
	}
	if there != 0 && (there != accounts || sum != funds) {
		h.violate("transaction", "%s has %d accounts with %d: %s", where, there, sum, strings.Join(all, ", "))
	}
}

// checkTransactions: the operations of a transaction have consecutive sequences, the events of a
// watch name it, and it was made as a whole.
func (h *history) checkTransactions(lives []*life, k *facts) {
	byID := map[uint64]*op{}
	for _, o := range h.ops {
		byID[o.ID] = o
		if o.Group == 0 {
			continue
		}
		first := h.ops[o.Group-1]
		if a, b := k.seq(first), k.seq(o); a != 0 && b != 0 && b-a != int64(o.ID-first.ID) {
			h.violate("transaction", "update %d of %q has sequence %d, and %d of %q, the first one, %d", o.ID, o.Key, b, first.ID, first.Key, a)
		}
	}
	for _, l := range lives {
		for i, e := range l.events {
			o := byID[e.value]
			if o == nil || !e.live {
				continue
			}
			want := int64(0)
			if o.Group != 0 {
				want = e.seq + int64(o.Group) + int64(o.Size) - 1 - int64(o.ID)
			}
			if e.transaction == 0 && want == e.seq && l.subtrees != nil {
				continue // it may be the only one that the client has
			}
			if e.transaction != want {
				h.violate("transaction", "%s: %q at %d belongs to transaction %d, want %d", l.name, e.key, e.seq, e.transaction, want)
			}
			// What a client of the whole map has of a transaction comes in a row.
			if last := i + int(want-e.seq); want > e.seq && l.subtrees == nil && (last >= len(l.events) || l.events[last].seq != want) {
				h.violate("transaction", "%s: %q at %d came without the rest of the transaction up to %d", l.name, e.key, e.seq, want)
			}
		}
	}
}

// checkConflicts: what a conflict reports was there, and a replica that has the key shows it.
func (h *history) checkConflicts(k *facts) {
	for _, o := range h.ops {
		if o.Outcome != conflicted {
			continue
		}
		if f, known := k.bySeq[o.PresentSeq]; o.PresentSeq != 0 && known && (f.key != o.Key || f.value != o.Saw) {
			h.violate("conflict", "%s %d of %q met value %d of %d, which is %q=%d", o.Kind, o.ID, o.Key, o.Saw, o.PresentSeq, f.key, f.value)
		}
		if seq, known := k.byValue[o.Saw]; known && seq != o.PresentSeq {
			h.violate("conflict", "%s %d of %q met value %d of %d, which has sequence %d", o.Kind, o.ID, o.Key, o.Saw, o.PresentSeq, seq)
		}
		switch {
		case !o.Looked || o.Shown == 0:
		case o.Shown < o.PresentSeq, o.PresentSeq == 0 && o.Shown == o.ExpectSeq:
			h.violate("read your conflicts", "%s: %s %d of %q met sequence %d, and the replica showed %d", o.Client, o.Kind, o.ID, o.Key, o.PresentSeq, o.Shown)
		}
	}
}

// checkExclusion: nobody takes a lock while another one has it, unless the server lost its map,
// and the tokens of those who took it one after the other rise.
func (h *history) checkExclusion() {
	var held, resets []*op
	end := h.now()
	for _, o := range h.ops {
		switch {
		case o.Kind == opReset:
			resets = append(resets, o)
		case o.Key == lockKey && o.Kind == opSet && o.Outcome == acked:
			held = append(held, o)
		}
	}
	until := func(o *op) time.Duration {
		if o.Released == 0 {
			return end
		}
		return o.Released
	}
	for i, a := range held { // in the order of their calls
		for _, b := range held[i+1:] {
			if a.Return < b.Call && a.Seq >= b.Seq {
				h.violate("exclusion", "token %d of %s after %d of %s", b.Seq, b.Client, a.Seq, a.Client)
			}
			if a.Return >= until(b) || b.Return >= until(a) {
				continue
			}
			if !slices.ContainsFunc(resets, func(r *op) bool {
				return r.Call <= max(a.Return, b.Return) && (r.Outcome != acked || r.Return >= min(a.Call, b.Call))
			}) {
				h.violate("exclusion", "%s has the lock with token %d from %v to %v, and %s with token %d from %v to %v",
					a.Client, a.Seq, a.Return, until(a), b.Client, b.Seq, b.Return, until(b))
			}
		}
	}
}

// newHolder makes the goroutine for conditions of a writing replica.
func newHolder(r *replica, proc int, seed uint64) *holder {
	return &holder{writer{replica: r, proc: proc, keys: []string{condSubtree}, rng: rand.New(rand.NewPCG(seed, uint64(100+proc))), pause: *think}}
}
