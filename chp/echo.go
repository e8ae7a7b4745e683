package chp

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"clustermap/chp/internal/ledger"
)

// echoes tracks the client's own updates: out to the server's collector, and back as
// KVPUBs.
//
// Updates to keys of the client's subtrees are numbered 1, 2, 3 … in the order in which
// they are sent. Over one connection to one server they come back in that order. Each
// number is settled once: the update came back, the server refused it, its outcome is
// uncertain, or it was never sent. An error goes to the SetSync that waits for the
// update and to every Flush that waits for it at that moment, or, if there are none, to
// the next Flush.
//
// A server reports refusals over another connection, so a refusal may arrive before the
// echoes of earlier updates, or after those of later ones. Until then the earlier
// numbers stay open.
type echoes struct {
	mu              sync.Mutex
	reportsRefusals bool        // the server reports every update that it refuses
	sent            uint64      // the last number that was assigned
	back            uint64      // every number up to this one is settled
	ahead           []fate      // of the numbers after back; empty unless they are settled out of order
	syncs           []*echoWait // each SetSync that waits, in the order of their numbers
	flushes         []*echoWait // each Flush that waits, in that order too
	unreported      losses      // errors for the next Flush
	closed          bool

	stuckAt uint64 // back at the last heartbeat that found settled numbers ahead
	stuck   int    // number of heartbeats that have found it there
}

// fate is the outcome of an update that comes after an open one.
type fate uint8

const (
	fateOpen    fate = iota // not known yet
	fateSettled             // came back, or its outcome was reported
	fateRefused             // plus the Reason
)

// maxAhead bounds echoes.ahead. A number that is still open when so many later ones are
// settled is uncertain.
const maxAhead = 1 << 16

// stuckBeats is the number of heartbeats without progress after which a number is
// uncertain if later ones came back.
const stuckBeats = 2

// losses holds why updates were lost: the last error of each kind.
type losses struct{ uncertain, refused, other error }

func (l *losses) add(err error) {
	switch {
	case errors.Is(err, ErrUncertain):
		l.uncertain = err
	case errors.Is(err, ErrRefused):
		l.refused = err
	default:
		l.other = err
	}
}

func (l *losses) err() error {
	var some []error
	for _, err := range []error{l.uncertain, l.refused, l.other} {
		if err != nil {
			some = append(some, err)
		}
	}
	if len(some) == 1 {
		return some[0]
	}
	return errors.Join(some...)
}

// echoWait is a SetSync that waits for update n, or a Flush that waits for all updates
// up to n.
type echoWait struct {
	n    uint64
	done chan struct{} // closed when seq and err are set
	seq  int64         // sequence of the update's KVPUB
	err  error
	lost losses // of a Flush: the updates lost while it waited

	batch *echoBatch // instead of the other fields but n: an ApplySync waits for this update and others
}

// echoBatch is an ApplySync that waits for several updates.
type echoBatch struct {
	left int // updates that are not settled
	seq  int64
	lost losses
	done chan struct{} // closed when left is 0, and the other fields do not change any more
}

func newEchoWait() *echoWait { return &echoWait{done: make(chan struct{})} }

func (w *echoWait) finish(seq int64, err error) {
	if b := w.batch; b != nil {
		b.seq = max(b.seq, seq)
		if err != nil {
			b.lost.add(err)
		}
		if b.left--; b.left == 0 {
			close(b.done)
		}
		return
	}
	w.seq, w.err = seq, err
	close(w.done)
}

// begin starts an ACTIVE state.
func (e *echoes) begin(reportsRefusals bool) {
	e.mu.Lock()
	e.reportsRefusals = reportsRefusals
	e.mu.Unlock()
}

// end ends an ACTIVE state in which the updates up to sent were sent. Those that have
// not come back become uncertain: they may have been applied, or lost with the
// connection.
func (e *echoes) end(sent uint64) {
	e.mu.Lock()
	e.settleTo(sent, ErrUncertain)
	e.mu.Unlock()
}

// fail settles all open updates with an error, because they will not be sent. It
// returns the number of the last one.
func (e *echoes) fail(reason error) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settleTo(e.sent, reason)
	return e.sent
}

// close ends all waits, current and future.
func (e *echoes) close() {
	e.mu.Lock()
	e.closed = true
	e.settleTo(e.sent, ErrClosed)
	e.mu.Unlock()
}

// number returns the number of the update that is about to be sent, or 0 after
// close. A SetSync passes its wait.
func (e *echoes) number(w *echoWait) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0
	}
	e.sent++
	if w != nil {
		w.n = e.sent
		e.syncs = append(e.syncs, w)
	}
	return e.sent
}

// came records that update n came back as the KVPUB with sequence seq. mu must be held:
// the session locks it once per batch.
func (e *echoes) came(n uint64, seq int64) {
	if n <= e.back || n > e.sent {
		return
	}
	if !e.reportsRefusals {
		e.settleTo(n-1, ErrUncertain) // the server went past them
	}
	e.mark(n, fateSettled, seq, nil)
}

// refuse records that the server refused update n.
func (e *echoes) refuse(n uint64, reason Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > e.back && n <= e.sent {
		reason = min(reason, ledger.SkipUnknown) // so that it has a place in a fate
		e.mark(n, fateRefused+fate(reason), 0, refusedFor(reason))
	}
}

// applied records that update n was applied. sequence returns its sequence.
func (e *echoes) applied(n uint64, sequence func() int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n <= e.back || n > e.sent {
		return
	}
	seq := int64(0)
	if len(e.syncs) > 0 && e.syncs[0].n <= n { // a SetSync may wait for it
		seq = sequence()
	}
	e.mark(n, fateSettled, seq, nil)
}

// lose records that update n is lost, and why.
func (e *echoes) lose(n uint64, reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := n - e.back - 1; n <= e.back || n > e.sent || i < uint64(len(e.ahead)) && e.ahead[i] != fateOpen {
		return
	}
	if !e.finishSync(n, 0, reason) {
		e.unreported.add(reason)
	}
	e.mark(n, fateSettled, 0, nil)
}

// drop settles update n, which was never sent. The caller reports the error.
func (e *echoes) drop(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > e.back && n <= e.sent {
		e.mark(n, fateSettled, 0, nil)
	}
}

// beat is called at each heartbeat of the server. After stuckBeats heartbeats without
// progress it makes updates uncertain that the server has neither published nor
// refused.
func (e *echoes) beat() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ahead) == 0 {
		e.stuck = 0
		return
	}
	if e.stuckAt != e.back {
		e.stuckAt, e.stuck = e.back, 0
	}
	if e.stuck++; e.stuck > stuckBeats {
		open := 0
		for open < len(e.ahead) && e.ahead[open] == fateOpen {
			open++
		}
		e.settleTo(e.back+uint64(open), ErrUncertain)
		e.advance()
	}
}

// mark settles number n, which is above back, with fate f. mu must be held, here and
// below.
func (e *echoes) mark(n uint64, f fate, seq int64, err error) {
	if n-e.back > maxAhead {
		e.settleTo(n-maxAhead, ErrUncertain)
	}
	i := int(n - e.back - 1)
	if i < len(e.ahead) && e.ahead[i] != fateOpen {
		return
	}
	finished := e.finishSync(n, seq, err)
	if len(e.ahead) == 0 && i == 0 { // in order, as nearly always
		e.step(f, finished)
		return
	}
	for len(e.ahead) <= i {
		e.ahead = append(e.ahead, fateOpen)
	}
	if e.ahead[i] = f; finished {
		e.ahead[i] = fateSettled
	}
	e.advance()
}

// advance moves back past the settled numbers.
func (e *echoes) advance() {
	for len(e.ahead) > 0 && e.ahead[0] != fateOpen {
		f := e.ahead[0]
		e.ahead = e.ahead[1:]
		e.step(f, false)
	}
	if len(e.ahead) == 0 {
		e.ahead = nil
	}
}

// settleTo settles the open numbers up to n as lost, for the given reason.
func (e *echoes) settleTo(n uint64, reason error) {
	for e.back < n {
		f := fateOpen
		if len(e.ahead) > 0 {
			f = e.ahead[0]
			e.ahead = e.ahead[1:]
		}
		if f == fateOpen {
			f = fateSettled
			if !e.finishSync(e.back+1, 0, reason) {
				e.unreported.add(reason)
			}
		}
		e.step(f, false)
	}
}

// step moves back past one number, whose fate is f. finished says that a SetSync has
// returned its error.
func (e *echoes) step(f fate, finished bool) {
	if f >= fateRefused && !finished {
		e.unreported.add(refusedFor(Reason(f - fateRefused)))
	}
	e.back++
	if len(e.flushes) == 0 || e.flushes[0].n > e.back {
		return
	}
	lost := e.unreported
	e.unreported = losses{}
	for len(e.flushes) > 0 && e.flushes[0].n <= e.back {
		w := e.flushes[0]
		e.flushes = e.flushes[1:]
		all := lost
		for _, err := range []error{w.lost.uncertain, w.lost.refused, w.lost.other} {
			if err != nil {
				all.add(err)
			}
		}
		w.finish(0, all.err())
	}
}

// finishSync ends the SetSync that waits for number n, and reports whether there is
// one. Every Flush that waits for n learns of an error in any case.
func (e *echoes) finishSync(n uint64, seq int64, err error) (finished bool) {
	if err != nil {
		for _, w := range e.flushes {
			if w.n >= n {
				w.lost.add(err)
			}
		}
	}
	if len(e.syncs) == 0 {
		return false
	}
	i := 0
	if e.syncs[0].n != n { // otherwise in order, as nearly always
		i, finished = slices.BinarySearchFunc(e.syncs, n, func(w *echoWait, n uint64) int { return cmp.Compare(w.n, n) })
		if !finished {
			return false
		}
	}
	w := e.syncs[i]
	if i == 0 {
		e.syncs = e.syncs[1:]
	} else {
		e.syncs = slices.Delete(e.syncs, i, i+1)
	}
	w.finish(seq, err)
	return true
}

// flush returns a wait for all updates so far. If all are settled it returns nil and
// the errors for this Flush.
func (e *echoes) flush() (*echoWait, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.back >= e.sent:
		err := e.unreported.err()
		e.unreported = losses{}
		return nil, err
	}
	w := newEchoWait()
	w.n = e.sent
	e.flushes = append(e.flushes, w)
	return w, nil
}

// forget removes a wait whose caller has given up.
func (e *echoes) forget(w *echoWait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, list := range []*[]*echoWait{&e.syncs, &e.flushes} {
		if i := slices.Index(*list, w); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return
		}
	}
}

// forgetBatch removes the waits of an ApplySync that has given up.
func (e *echoes) forgetBatch(b *echoBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.syncs = slices.DeleteFunc(e.syncs, func(w *echoWait) bool { return w.batch == b })
}

// onTheWay returns the range of numbers that are not all settled, from first to last.
// It is empty if last is less than first.
func (e *echoes) onTheWay() (first, last uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.back + 1, e.sent
}
