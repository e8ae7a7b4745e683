package ledger

import (
	"slices"
	"sort"

	"clustermap/internal/fifo"
	"clustermap/internal/kvmsg"
)

// Account is a client's account of its own updates. They are numbered 1, 2, 3 … in the
// order in which they are sent. Each number is settled once: the update is in the map and
// the client's replica shows it, the server refused it, its outcome is uncertain, or it was
// never sent. An error goes to the [Wait] for the update and to every Wait for all updates
// that is pending at that moment, or, if there are none, to the next Flush.
//
// A server of this package acknowledges updates by its reply alone (Reconcile, Reply, Seen). At
// others, and at older ones of this package, updates come back one by one (Echo).
//
// The zero Account is that of a client that has sent nothing. It is not safe for concurrent
// use.
type Account struct {
	staged   uint64 // the last number that was given
	sent     uint64 // the last number that was sent at least once
	accepted uint64 // the server has said that it has all up to this one, or will never need to
	settled  uint64 // all up to this one are settled
	asked    uint64 // a reply will tell of all up to this one, or nothing can
	ahead    []Skip // numbers above settled of which the outcome is known, in order

	syncs      fifo.Queue[*Wait] // for one update, in the order of their numbers
	flushes    fifo.Queue[*Wait] // for all updates up to one, in that order too
	unreported Losses            // for the next Flush
	closed     bool

	known bool            // the server tells its clients' progress
	mapID [MapIDSize]byte // of that server's map
	since int64           // a sequence of that map below those of all updates that are not accepted

	runs  []Run  // of replies, above settled: the replica does not show their updates yet
	skips []Skip // of the last reply

	// For servers that do not acknowledge.
	reportsRefusals bool   // the server reports every update that it refuses
	late            uint64 // it has published all up to this one: see Beat
	stuckAt         uint64 // settled when beats began to count
	beats           int
}

// More outcomes of an update on its way.
const (
	skipForeign kvmsg.Reason = 0xFB // it does not come back, since it is outside of the client's subtrees
	skipTold    kvmsg.Reason = 0xFC // there is nothing more to say about it
)

// Begin begins a session at a server with which no session was before, or after Reconcile.
// reportsRefusals says that the server reports every update that it refuses.
func (a *Account) Begin(reportsRefusals bool) { a.reportsRefusals = reportsRefusals }

// Stage returns the number of the update that is sent next, or 0 after Close. foreign
// means that it does not come back. w waits for it, if not nil.
func (a *Account) Stage(foreign bool, w *Wait) uint64 {
	if a.closed {
		return 0
	}
	a.staged++
	switch {
	case foreign && a.settled == a.staged-1: // as always, if the client's updates are all so
		a.settled = a.staged
	case foreign:
		a.mark(a.staged, skipForeign)
	case w != nil:
		w.n = a.staged
		a.syncs.Push(w)
	}
	return a.staged
}

// Send records that all updates up to n were sent. The server can be faster: what it says
// of them may come before.
func (a *Account) Send(n uint64) { a.sent = max(a.sent, n) }

// Asks reports whether something waits for the updates up to last, for which the server was
// not asked yet.
func (a *Account) Asks(last uint64) bool {
	waits := func(list *fifo.Queue[*Wait]) bool {
		i := sort.Search(list.Len(), func(i int) bool { return (*list.At(i)).n > a.asked })
		return i < list.Len() && (*list.At(i)).n <= last
	}
	return last > a.asked && (waits(&a.syncs) || waits(&a.flushes))
}

// Ask records that the server was asked behind update last.
func (a *Account) Ask(last uint64) { a.asked = last }

// Unasked reports whether the server was not asked about the updates up to last, and has
// answered all that it was.
func (a *Account) Unasked(last uint64) bool { return a.asked <= a.accepted && a.accepted < last }

// Sent returns the last number that was sent at least once.
func (a *Account) Sent() uint64 { return a.sent }

// Remove removes update n, which was never sent and for which nothing waits. Those behind
// it get the next lower numbers.
func (a *Account) Remove(n uint64) {
	i := sort.Search(len(a.ahead), func(i int) bool { return a.ahead[i].Last >= n })
	for ; i < len(a.ahead); i++ {
		if a.ahead[i].first > n {
			a.ahead[i].first--
		}
		a.ahead[i].Last--
	}
	for _, list := range []*fifo.Queue[*Wait]{&a.syncs, &a.flushes} {
		for i := range list.Len() {
			if w := *list.At(i); w.n > n || w.n == n && w.all {
				w.n--
			}
		}
	}
	if a.staged--; a.settled >= n {
		a.settled--
	}
	a.advance()
	a.finishFlushes()
}

// Keeps reports whether updates that were sent must be kept until they are Done.
func (a *Account) Keeps() bool { return a.known }

// Done reports whether all updates up to n, which were sent, need not be kept: the server
// has them, and they are settled.
func (a *Account) Done(n uint64) bool { return !a.known || n <= min(a.accepted, a.settled) }

// Open returns the range of the numbers that are not all settled. It is empty if last is
// less than first.
func (a *Account) Open() (first, last uint64) { return a.settled + 1, a.staged }

// Waiting reports whether Seen may settle something.
func (a *Account) Waiting() bool { return len(a.runs) > 0 }

// Reconcile begins a session with the reply of its server, which is nil if the server does not
// tell its clients' progress. The replica has been brought to a sequence. Reconcile returns the
// number from which to send: higher ones were not accepted, and are sent again.
func (a *Account) Reconcile(r *Reply, sequence int64) (next uint64) {
	a.runs, a.skips, a.late, a.beats = a.runs[:0], a.skips[:0], 0, 0
	if r != nil && a.known && r.mapID == a.mapID && (r.Known || !forgotSince(r.forgotten, a.since)) {
		next = min(r.Counter, a.sent) + 1
		a.accept(r.skips, next-1, ErrUncertain, func(n uint64) int64 {
			if i := sort.Search(len(r.Runs), func(i int) bool { return r.Runs[i].Last >= n }); i < len(r.Runs) {
				return min(sequence, r.Runs[i].sequence(n, r.skips))
			}
			return sequence
		})
		a.accepted = next - 1 // also if it was further before
	} else {
		a.abandon()
		next = a.sent + 1
	}
	a.asked = next - 1
	if a.known = r != nil; a.known {
		a.mapID = r.mapID
	}
	if next > a.sent {
		a.since = sequence
	}
	return next
}

// abandon makes all updates uncertain that were sent and are not settled.
func (a *Account) abandon() { a.Lose(a.sent, ErrUncertain) }

// Lose settles the updates up to n as lost, for a reason.
func (a *Account) Lose(n uint64, reason error) {
	a.settleTo(n, reason, nil)
	a.accepted = max(a.accepted, n)
}

// Leave ends a session. It reports whether the updates that are on their way can be
// settled in a later one; otherwise they become uncertain.
func (a *Account) Leave() {
	if !a.known {
		a.abandon()
	}
}

// Fail settles all updates, because they will not be sent. Those that were sent are
// uncertain. Numbers that were not sent are used again.
func (a *Account) Fail(reason error) {
	a.abandon()
	a.Lose(a.staged, reason)
	a.staged, a.accepted, a.settled = a.sent, a.sent, a.sent
}

// Close ends all waits, present and future, with an error.
func (a *Account) Close(reason error) {
	a.closed = true
	a.settleTo(a.staged, reason, nil)
}

// Reply handles a reply that the server sends during a session. It returns false if that
// is about another map.
func (a *Account) Reply(r *Reply) bool {
	if !a.known || r.mapID != a.mapID {
		return false
	}
	a.skips = append(a.skips[:0], r.skips...)
	for _, s := range r.skips { // the refusals may have gone to a connection that had ended
		for n := max(s.first, a.settled+1); n <= min(s.Last, r.Counter, a.staged) && s.reason != SkipSome; n++ {
			a.Refuse(n, s.reason)
		}
	}
	if r.Runs == nil { // an older server: Beat
		a.late, a.beats, a.stuckAt = min(r.Counter, a.staged), 0, a.settled
		a.accepted = max(a.accepted, a.late)
		return true
	}
	a.accepted = max(a.accepted, min(r.Counter, a.staged))
	for _, run := range r.Runs {
		last := a.settled
		if n := len(a.runs); n > 0 {
			last = a.runs[n-1].Last
		}
		if run.Last > last && run.Last <= a.staged {
			a.runs = append(a.runs, run)
		}
	}
	return true
}

// Seen records that the replica has applied all updates up to a sequence.
func (a *Account) Seen(sequence int64) {
	for len(a.runs) > 0 {
		run := a.runs[0]
		n := run.Last
		if run.seq > sequence {
			n = run.upTo(sequence, a.skips)
		}
		// A range with SkipSome contains nothing new: all refusals of updates that were
		// sent over this connection came before the reply.
		a.accept(a.skips, n, nil, func(n uint64) int64 { return run.sequence(n, a.skips) })
		if n < run.Last {
			return
		}
		a.runs = slices.Delete(a.runs, 0, 1)
	}
}

// Echo records that update n came back, with a sequence.
func (a *Account) Echo(n uint64, sequence int64) {
	if n <= a.settled || n > a.staged {
		return
	}
	if !a.reportsRefusals {
		a.Lose(n-1, ErrUncertain) // the server went past them
	}
	a.accepted = max(a.accepted, n) // over one connection they come in order
	if !a.knows(n) {
		a.finishSync(n, sequence, nil)
		a.mark(n, skipTold)
	}
}

// Refuse records that the server refused update n.
func (a *Account) Refuse(n uint64, reason kvmsg.Reason) {
	if n <= a.settled || n > a.staged || a.knows(n) {
		return
	}
	if reason >= skipForeign {
		reason = SkipUnknown
	}
	if a.finishSync(n, 0, RefusedFor(reason)) {
		reason = skipTold
	}
	a.mark(n, reason)
}

// Beat is called at each heartbeat of a server that does not acknowledge.
func (a *Account) Beat() {
	if a.stuckAt != a.settled {
		a.stuckAt, a.beats = a.settled, 0
	}
	if len(a.ahead) == 0 && a.late <= a.settled {
		return
	}
	if a.beats++; a.beats <= stuckBeats {
		return
	}
	a.beats = 0
	a.accept(a.skips, a.late, ErrUncertain, nil)
	if i := slices.IndexFunc(a.ahead, func(s Skip) bool { return s.reason != skipForeign }); i >= 0 && a.ahead[i].first <= a.sent {
		a.Lose(a.ahead[i].first-1, ErrUncertain)
	}
}

// accept settles the numbers up to n, which the server has accepted or skipped. some is
// the error of those of which it does not know which. sequence returns that of an update.
func (a *Account) accept(skips []Skip, n uint64, some error, sequence func(n uint64) int64) {
	for _, s := range skips {
		if s.Last <= a.settled || s.first > n {
			continue
		}
		a.settleTo(min(max(s.first, 1)-1, n), nil, sequence)
		err := some
		if s.reason != SkipSome {
			err = RefusedFor(s.reason)
		}
		a.settleTo(min(s.Last, n), err, sequence)
	}
	a.settleTo(n, nil, sequence)
}

// settleTo settles the numbers up to n whose outcomes are not known yet: with err, or as
// applied. sequence may be nil.
func (a *Account) settleTo(n uint64, err error, sequence func(n uint64) int64) {
	for a.settled < n {
		last := n
		if len(a.ahead) > 0 {
			last = min(last, a.ahead[0].first-1)
		}
		if a.flushes.Len() > 0 {
			last = min(last, a.flushes.Front().n)
		}
		told := uint64(0)
		for a.syncs.Len() > 0 && a.syncs.Front().n <= last {
			n, at := a.syncs.Front().n, int64(0)
			if sequence != nil && err == nil {
				at = sequence(n)
			}
			a.finishSync(n, at, err)
			told++
		}
		if err != nil && told < last-a.settled {
			a.lost(last, err)
			a.unreported.add(err)
		}
		a.settled = last
		a.finishFlushes()
		a.advance()
	}
}

// knows reports whether the outcome of a number above settled is known.
func (a *Account) knows(n uint64) bool {
	if len(a.ahead) == 0 {
		return false
	}
	i := sort.Search(len(a.ahead), func(i int) bool { return a.ahead[i].Last >= n })
	return i < len(a.ahead) && a.ahead[i].first <= n
}

// mark records the outcome of a number above settled, which was not known.
func (a *Account) mark(n uint64, reason kvmsg.Reason) {
	if len(a.ahead) == 0 && n == a.settled+1 { // in order, as nearly always
		a.pass(Skip{n, n, reason})
		return
	}
	i := sort.Search(len(a.ahead), func(i int) bool { return a.ahead[i].first > n })
	switch {
	case i > 0 && a.ahead[i-1].Last+1 == n && a.ahead[i-1].reason == reason:
		a.ahead[i-1].Last = n
	case i < len(a.ahead) && a.ahead[i].first == n+1 && a.ahead[i].reason == reason:
		a.ahead[i].first = n
	default:
		a.ahead = slices.Insert(a.ahead, i, Skip{n, n, reason})
	}
	a.advance()
}

// advance moves settled past the numbers whose outcomes are known.
func (a *Account) advance() {
	for len(a.ahead) > 0 && a.ahead[0].first == a.settled+1 {
		s := a.ahead[0]
		a.ahead = a.ahead[1:]
		a.pass(s)
	}
}

// pass moves settled past numbers that follow it.
func (a *Account) pass(s Skip) {
	if s.reason != skipForeign {
		if a.accepted+1 >= s.first {
			a.accepted = max(a.accepted, s.Last)
		}
		if s.reason != skipTold {
			a.unreported.add(RefusedFor(s.reason))
		}
	}
	a.settled = s.Last
	a.finishFlushes()
}

// finishFlushes ends the waits for all updates up to settled.
func (a *Account) finishFlushes() {
	if a.flushes.Len() == 0 || a.flushes.Front().n > a.settled {
		return
	}
	lost := a.unreported
	a.unreported = Losses{}
	for a.flushes.Len() > 0 && a.flushes.Front().n <= a.settled {
		w := a.flushes.Pop()
		w.lost.merge(lost)
		w.finish(0, w.lost.Err())
	}
}

// lost tells the waits for all updates up to n, or to a later one, of an error.
func (a *Account) lost(n uint64, err error) {
	for i := range a.flushes.Len() {
		if w := *a.flushes.At(i); w.n >= n {
			w.lost.add(err)
		}
	}
}

// finishSync ends the wait for update n, and reports whether there is one. Every wait for
// all updates up to it learns of an error in any case.
func (a *Account) finishSync(n uint64, sequence int64, err error) (finished bool) {
	if err != nil {
		a.lost(n, err)
	}
	var w *Wait
	switch i := sort.Search(a.syncs.Len(), func(i int) bool { return (*a.syncs.At(i)).n >= n }); {
	case i == a.syncs.Len() || (*a.syncs.At(i)).n != n:
		return false
	case i == 0: // in order, as nearly always
		w = a.syncs.Pop()
	default:
		w = *a.syncs.At(i)
		a.syncs.DeleteFunc(func(other *Wait) bool { return other == w })
	}
	w.finish(sequence, err)
	return true
}

// Flush returns a wait for all updates so far. If all are settled it returns nil and the
// errors for this Flush. closed is the error after Close.
func (a *Account) Flush(closed error) (*Wait, error) {
	switch {
	case a.closed:
		return nil, closed
	case a.settled >= a.staged:
		err := a.unreported.Err()
		a.unreported = Losses{}
		return nil, err
	}
	w := NewWait()
	w.n, w.all = a.staged, true
	a.flushes.Push(w)
	return w, nil
}

// Forget removes a wait whose caller has given up, or the waits of a group.
func (a *Account) Forget(w *Wait, g *Group) {
	is := func(other *Wait) bool { return other == w || g != nil && other.group == g }
	a.syncs.DeleteFunc(is)
	a.flushes.DeleteFunc(is)
}

// Waits returns the number of pending waits.
func (a *Account) Waits() int { return a.syncs.Len() + a.flushes.Len() }
