//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"clustermap/chp"

	"github.com/anishathalye/porcupine"
)

// fact is the update with one sequence.
type fact struct {
	key   string
	value uint64 // 0: the key was deleted
	uuid  [16]byte
	from  string // the watch that reported it first
}

// update is one of a client: those of a transaction have the same UUID.
type update struct {
	uuid [16]byte
	key  string
}

// facts holds the updates that all watches together have reported.
type facts struct {
	bySeq   map[int64]fact
	byValue map[uint64]int64
	byUUID  map[update]int64
	seen    map[uint64]time.Duration // when a value was reported first
	sorted  []int64
	byKey   map[string][]int64 // sorted, too
}

// check checks everything that the recorded events show. If there may have been two
// active servers at once, little of it holds: see shape.splits.
func (h *history) check(lives []*life, keys []string, timeout time.Duration, splits bool) {
	k := h.collect(lives)
	if splits {
		h.broken = slices.DeleteFunc(h.broken, func(v violation) bool { return v.Check == "twice" })
		return
	}
	h.known(k)
	calls := h.calls(k)
	for _, l := range lives {
		h.checkOrder(l)
		h.checkComplete(l, k, calls)
		h.checkFresh(l, k)
		h.checkExpiry(l)
		if l.report != nil {
			h.checkWatch(&trace{l.name, l.subtrees, []*stretch{l.report}}, k)
		}
	}
	for _, p := range h.programs {
		h.checkWatch(&p.trace, k)
	}
	h.checkAcknowledged(k)
	h.checkProgramOrder(k)
	h.checkReadYourWrites(lives, k)
	h.checkTransactions(lives, k)
	h.checkConflicts(k)
	h.checkExclusion()
	h.checkLinearizable(k, keys, timeout)
}

// collect brings together the watches' reports, and finds contradictions.
func (h *history) collect(lives []*life) *facts {
	k := &facts{bySeq: map[int64]fact{}, byValue: map[uint64]int64{}, byUUID: map[update]int64{}, seen: map[uint64]time.Duration{}}
	for _, l := range lives {
		for _, e := range l.events {
			if e.value == 0 && !e.live {
				continue // its sequence is the snapshot's
			}
			old, known := k.bySeq[e.seq]
			if !known {
				k.bySeq[e.seq] = fact{e.key, e.value, e.uuid, l.name}
			} else if old.key != e.key || old.value != e.value || old.uuid != e.uuid {
				h.violate("agreement", "sequence %d is %q=%d (%x) at %s and %q=%d (%x) at %s",
					e.seq, old.key, old.value, old.uuid, old.from, e.key, e.value, e.uuid, l.name)
			}
			if e.value != 0 && e.value < sumBase {
				if seq, known := k.byValue[e.value]; known && seq != e.seq {
					h.violate("twice", "value %d of %q has the sequences %d and %d (%s)", e.value, e.key, seq, e.seq, l.name)
				}
				k.byValue[e.value] = e.seq
				if at, known := k.seen[e.value]; !known || e.at < at {
					k.seen[e.value] = e.at
				}
			}
			if e.uuid != [16]byte{} {
				who := update{e.uuid, e.key}
				if seq, known := k.byUUID[who]; known && seq != e.seq {
					h.violate("twice", "UUID %x of %q has the sequences %d and %d (%s)", e.uuid, e.key, seq, e.seq, l.name)
				}
				k.byUUID[who] = e.seq
			}
		}
	}
	for seq := range k.bySeq {
		k.sorted = append(k.sorted, seq)
	}
	slices.Sort(k.sorted)
	k.byKey = map[string][]int64{}
	for _, seq := range k.sorted {
		key := k.bySeq[seq].key
		k.byKey[key] = append(k.byKey[key], seq)
	}
	return k
}

// known takes back the sequences of calls that did not return their update's. A call
// whose update was applied while its client was not connected returns the new snapshot's
// sequence if the key has changed since, which is at least as high. Deletions of a key
// look alike, so the sequence of such a call is unknown even if it is a deletion's.
func (h *history) known(k *facts) {
	for _, o := range h.ops {
		if o.Seq == 0 || o.Kind != opSet && o.Kind != opDelete {
			continue
		}
		if f, seen := k.bySeq[o.Seq]; seen && o.Kind == opSet && f.value == o.ID {
			continue
		}
		if !o.Synced || o.exact() {
			continue
		}
		if seq := k.byValue[o.ID]; seq < o.Seq {
			o.Seq = seq // 0 if no watch saw it
		}
	}
}

// calls returns for each sequence when the update was made, as far as that is
// known.
func (h *history) calls(k *facts) map[int64]time.Duration {
	calls := map[int64]time.Duration{}
	for _, o := range h.ops {
		if seq := k.seq(o); seq != 0 {
			calls[seq] = o.Call
		}
	}
	return calls
}

// seq returns the sequence of an update, 0 if it is not known.
func (k *facts) seq(o *op) int64 {
	if o.Seq != 0 {
		return o.Seq
	}
	return k.byValue[o.ID]
}

// checkOrder: the sequences of the updates that come rise.
func (h *history) checkOrder(l *life) {
	last := int64(0)
	for _, e := range l.events {
		if !e.live {
			continue
		}
		if e.seq <= last {
			h.violate("order", "%s: sequence %d after %d", l.name, e.seq, last)
		}
		last = e.seq
	}
}

// begins is the least number of sequences that a server leaves out when it begins after what was
// there before: a client that comes back without a snapshot sees that.
const begins = 1 << 20

// checkComplete: between two updates that a watch reports nothing of its subtrees
// is missing, unless the client took a new snapshot meanwhile.
func (h *history) checkComplete(l *life, k *facts, calls map[int64]time.Duration) {
	var before *event
	since := time.Duration(0) // the one before was applied after this
	for i := range l.events {
		e := &l.events[i]
		if !e.live {
			continue
		}
		if before != nil && !slices.ContainsFunc(l.installs, func(i install) bool { return i.at >= since && i.at <= e.at }) {
			from, _ := slices.BinarySearch(k.sorted, before.seq+1)
			for _, seq := range k.sorted[from:] {
				if seq >= e.seq {
					break
				}
				if f := k.bySeq[seq]; holds(l.subtrees, f.key) {
					h.violate("complete", "%s: between %d and %d update %d of %q is missing, which %s has", l.name, before.seq, e.seq, seq, f.key, f.from)
				}
			}
			if missing := e.seq - before.seq - 1; len(l.subtrees) == 0 && missing != 0 && missing < begins {
				h.violate("complete", "%s: %d updates are missing after %d", l.name, e.seq-before.seq-1, before.seq)
			}
		}
		before = e
		since = max(since, calls[e.seq])
	}
}

// checkFresh: the values that a client has from a snapshot are not older than the updates
// before the first one that it saw after the snapshot.
func (h *history) checkFresh(l *life, k *facts) {
	has := map[string]int64{}
	var before *event
	for i := range l.events {
		e := &l.events[i]
		if e.live && before != nil && (!before.live || slices.ContainsFunc(l.installs, func(i install) bool { return i.at <= e.at && i.at >= before.at })) {
			for key, seq := range has {
				all := k.byKey[key]
				// A watch does not report an update to the same value that a snapshot brought.
				if n, _ := slices.BinarySearch(all, e.seq); n > 0 && all[n-1] > seq && k.bySeq[all[n-1]].value != k.bySeq[seq].value {
					h.violate("fresh", "%s: when update %d came %q was of %d, and %d had been applied (%s has it)", l.name, e.seq, key, seq, all[n-1], k.bySeq[all[n-1]].from)
				}
			}
		}
		if e.value == 0 {
			delete(has, e.key)
		} else {
			has[e.key] = e.seq
		}
		before = e
	}
}

// checkExpiry: a key that expires had a time to live.
func (h *history) checkExpiry(l *life) {
	ops := map[uint64]*op{}
	for _, o := range h.ops {
		ops[o.ID] = o
	}
	last := map[string]event{}
	for _, e := range l.events {
		if e.cause == chp.CauseExpired && e.live {
			o := ops[last[e.key].value]
			switch {
			case o == nil:
				h.violate("expiry", "%s: %q expired at %d and was not there", l.name, e.key, e.seq)
			case o.TTL == 0:
				h.violate("expiry", "%s: %q expired at %d; value %d has no time to live", l.name, e.key, e.seq, o.ID)
			case e.at+slack < o.Call+o.TTL:
				h.violate("expiry", "%s: %q expired at %d after %v; value %d was to live for %v", l.name, e.key, e.seq, e.at-o.Call, o.ID, o.TTL)
			}
		}
		last[e.key] = e
	}
}

// checkAcknowledged: the sequence that a call returned is its update's, and updates
// reported as not done were not done.
func (h *history) checkAcknowledged(k *facts) {
	made := map[int64]*op{}
	for _, o := range h.ops {
		if o.Kind != opSet && o.Kind != opDelete {
			continue
		}
		want := fact{key: o.Key}
		if o.Kind == opSet {
			want.value = o.value()
		}
		if o.If != "" && o.Seq != 0 {
			if other := made[o.Seq]; other != nil {
				h.violate("acknowledged", "%s %d of %q and %s %d of %q returned %d", o.Kind, o.ID, o.Key, other.Kind, other.ID, other.Key, o.Seq)
			}
			made[o.Seq] = o
		}
		if f, known := k.bySeq[o.Seq]; o.Seq != 0 && known && (f.key != want.key || f.value != want.value) {
			h.violate("acknowledged", "%s %d of %q returned %d, which is %q=%d", o.Kind, o.ID, o.Key, o.Seq, f.key, f.value)
		}
		if seq, applied := k.byValue[o.ID]; applied && o.Seq != 0 && o.Seq != seq {
			h.violate("acknowledged", "set %d of %q returned %d and was applied as %d", o.ID, o.Key, o.Seq, seq)
		} else if applied && o.Outcome == conflicted {
			h.violate("exact", "set %d of %q met a conflict (%s) and was applied as %d", o.ID, o.Key, o.Err, seq)
		} else if applied && o.Outcome == failed {
			h.violate("acknowledged", "set %d of %q failed (%s) and was applied as %d", o.ID, o.Key, o.Err, seq)
		}
	}
}

// checkProgramOrder: the updates of one goroutine through one client are applied in
// the order in which it made them.
func (h *history) checkProgramOrder(k *facts) {
	type who struct {
		proc   int
		client string
	}
	last := map[who]*op{}
	for _, o := range h.ops {
		seq := k.seq(o)
		if seq == 0 || o.Kind != opSet && o.Kind != opDelete {
			continue
		}
		w := who{o.Proc, o.Client}
		if o.Outcome == conflicted || o.Group != 0 && o.Group != o.ID {
			continue
		}
		if before := last[w]; before != nil && k.seq(before) >= seq {
			h.violate("program order", "%s: %s %d (%s) is %d, and %s %d (%s) before it %d", o.Client, o.Kind, o.ID, o.Outcome, seq, before.Kind, before.ID, before.Outcome, k.seq(before))
		}
		if o.If == "" || o.Outcome == acked { // one that is judged again can come after later ones
			last[w] = o
		}
	}
}

// checkReadYourWrites: after an update was acknowledged its client has it, or a later
// update of the key.
//
// A watch does not report a key that was set and deleted again while its client was not
// connected. Other watches have reported the updates that it had not reported when it was
// closed.
func (h *history) checkReadYourWrites(lives []*life, k *facts) {
	type at struct{ client, key string }
	deleted := map[at]int64{} // the last deletion
	for _, l := range lives {
		last := int64(0)
		for _, e := range l.events {
			if e.value == 0 {
				deleted[at{l.name, e.key}] = e.seq
			}
			last = max(last, e.seq)
		}
		from, _ := slices.BinarySearch(k.sorted, last+1)
		for _, seq := range k.sorted[from:] {
			if f := k.bySeq[seq]; seq <= l.sequence && f.value == 0 {
				deleted[at{l.name, f.key}] = seq
			}
		}
	}
	for _, o := range h.ops {
		if !o.Looked || o.Outcome != acked || o.Kind == opSet && o.Saw == o.ID || o.Kind == opDelete && o.Saw == 0 {
			continue
		}
		switch seq, known := k.byValue[o.Saw]; {
		case o.Saw == 0 && !o.Synced && deleted[at{o.Client, o.Key}] < o.Seq:
			h.violate("read your writes", "%s: %q was set by %d at %d and is not there", o.Client, o.Key, o.ID, o.Seq)
		case known && seq < o.Seq:
			h.violate("read your writes", "%s: %q is value %d of %d after %s %d at %d", o.Client, o.Key, o.Saw, seq, o.Kind, o.ID, o.Seq)
		}
	}
}

// register is the state of a key.
type register struct {
	value uint64        // 0: not there
	until time.Duration // it does not expire before; 0: never
	seq   int64         // of the last update that has a known sequence
	gone  int           // how many of the vanishings have come
}

// slack is how much earlier than a call's TTL a key may go: clocks are rounded.
const slack = 5 * time.Millisecond

var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		r, o := state.(register), input.(*stepped)
		switch o.Kind {
		case opReset:
			return true, register{seq: r.seq, gone: r.gone}
		case opRead:
			if o.Saw == 0 && r.until != 0 && o.Return+slack >= r.until {
				r = register{seq: r.seq, gone: r.gone}
			}
			return o.Saw == r.value, r
		}
		switch {
		case o.If == condAdd:
			sum := max(r.value, sumBase) + 1
			return (o.Value == 0 || o.Value == sum) && (o.vanishing == 0 || o.vanishing == r.gone+1), register{value: sum, seq: r.seq, gone: r.gone + min(o.vanishing, 1)}
		case o.If == condSame:
			// The key may have expired.
			if r.until != 0 && o.until+slack >= r.until && (o.Outcome == conflicted && o.Saw == 0 || o.Outcome != conflicted && o.Expect == 0) {
				r = register{seq: r.seq, gone: r.gone}
			}
			switch holds := r.value == o.Expect; {
			case o.Outcome == conflicted:
				return r.value == o.Saw && holds == o.Held, r
			case !holds && o.vanishing != 0:
				return o.vanishing == r.gone+1, register{r.value, r.until, r.seq, o.vanishing}
			case !holds:
				return false, r
			}
		}
		if o.vanishing != 0 {
			return o.vanishing == r.gone+1, register{seq: r.seq, gone: o.vanishing}
		}
		if o.seq != 0 {
			if o.seq <= r.seq {
				return false, r
			}
			r.seq = o.seq
		}
		r.value, r.until = 0, 0
		if o.Kind == opSet {
			r.value = o.ID
			if o.TTL > 0 {
				r.until = o.Call + o.TTL
			}
		}
		return true, r
	},
	DescribeOperation: func(input, _ any) string {
		o := input.(*stepped)
		if o.Kind == opRead {
			return fmt.Sprintf("read %d", o.Saw)
		}
		return fmt.Sprintf("%s %d: %s %d", o.Kind, o.ID, o.Outcome, o.seq)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// stepped is an operation as the model takes it.
type stepped struct {
	*op
	seq   int64         // 0: not known
	until time.Duration // it was done before

	// A vanishing is an operation that may have been done or not, and leaves no key: a
	// deletion, or a set whose value no client has seen and whose time to live may have
	// ended. The vanishings of a key differ only in when they began, and each may come at
	// any later time. So they can as well come in the order in which they began; else
	// there were too many orders to try. They are numbered from 1.
	//
	// Those with a condition demand a value that was there when they began, and that never
	// comes back, so the same is true of them; and of additions.
	vanishing int
}

// checkLinearizable: there is an order of all operations on a key that fits their
// results, the times of their calls and the sequences.
func (h *history) checkLinearizable(k *facts, keys []string, timeout time.Duration) {
	end := h.now()
	byKey := map[string][]*op{}
	seen := maps.Clone(k.seen) // when a value was seen first
	var resets []*op
	for _, o := range h.ops {
		byKey[o.Key] = append(byKey[o.Key], o)
		if at, known := seen[o.Saw]; o.Saw != 0 && (!known || o.Return < at) {
			seen[o.Saw] = o.Return
		}
		if at, known := seen[o.Expect]; o.Expect != 0 && (!known || o.Call < at) {
			seen[o.Expect] = o.Call
		}
		if o.Kind == opReset {
			resets = append(resets, o)
		}
	}
	deadline := time.Now().Add(timeout)
	for _, key := range keys {
		var ops, vanishings []porcupine.Operation
		for _, o := range slices.Concat(byKey[key], resets) {
			x := porcupine.Operation{ClientId: max(o.Proc, 0), Input: &stepped{op: o, seq: k.seq(o), until: o.Return}, Call: int64(o.Call), Return: int64(o.Return)}
			at, applied := seen[o.ID]
			switch {
			case o.Outcome == failed:
				continue
			case o.Outcome == acked, o.Outcome == conflicted:
			case o.Kind == opRead:
				continue
			case o.Kind == opReset:
				x.Return = int64(end)
			case applied: // before it was seen
				x.Return, x.Input.(*stepped).until = int64(at), at
			case o.Kind == opDelete, o.If == condAdd:
				x.Return = int64(end)
				vanishings = append(vanishings, x)
				continue
			case o.If != "": // it was made where there was no key, and has left none
				continue
			case o.TTL > 0 && o.Call+o.TTL-slack < end: // the key was not seen to be gone before
				x.Call, x.Return = int64(o.Call+o.TTL-slack), int64(end)
				vanishings = append(vanishings, x)
				continue
			default:
				continue // no client has seen it, so it can stand behind all others
			}
			ops = append(ops, x)
		}
		byCall := func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }
		slices.SortFunc(vanishings, byCall)
		for i, x := range vanishings {
			x.Input.(*stepped).vanishing = i + 1
		}
		ops = append(ops, vanishings...)
		slices.SortFunc(ops, byCall)
		switch porcupine.CheckOperationsTimeout(model, ops, max(time.Until(deadline), time.Second)) {
		case porcupine.Illegal:
			h.violate("linearizable", "%q: no order of its %d operations fits what they returned", key, len(ops))
		case porcupine.Unknown:
			h.violate("undecided", "%q: whether its %d operations are linearizable could not be decided in time", key, len(ops))
		}
	}
}
