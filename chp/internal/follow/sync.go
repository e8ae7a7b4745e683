package follow

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/chp/internal/wire"
	"clustermap/internal/closed"
	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// ErrNoSync is chp.ErrNoSync.
var ErrNoSync = errors.New("chp: the server does not say up to which sequence it has committed updates")

// syncs are the calls that wait until the replica has come to a sequence: to one that they
// name, or to that of the last update that the server had committed when they began.
//
// Calls of the latter kind share questions. While one is on its way, those that come wait for
// the next one: the answer to a question says nothing about a call that began after it was
// sent. So any number of calls needs one question a round trip.
type syncs struct {
	replica func() int64 // its sequence

	mu      sync.Mutex
	session *session // that is ACTIVE; nil otherwise
	able    bool     // its server answers
	number  uint64   // of the last question
	asking  bool     // it was not answered yet
	asked   []*wait  // for which it was sent
	next    []*wait  // for which the next one is to be sent
	goals   []*wait  // with a sequence, the lowest first
	closed  bool
	wire    []byte // scratch

	least atomic.Int64 // sequence of the first of goals; written under mu
}

// wait is a call that waits.
type wait struct {
	sequence int64
	asks     bool  // the sequence is from an answer of the present session
	slack    int64 // the answer less this is the sequence
	done     chan struct{}
	err      error
}

func (w *wait) end(err error) {
	w.err = err
	close(w.done)
}

func (y *syncs) init(replica func() int64) {
	y.replica = replica
	y.least.Store(math.MaxInt64)
}

// Sync waits until the replica has all that the server had committed when the call began, or all but
// the last slack updates of it.
func (f *Follower) Sync(ctx context.Context, slack int64) error {
	y := &f.syncs
	w := &wait{asks: true, slack: slack, done: make(chan struct{})}
	y.mu.Lock()
	switch {
	case y.closed:
		y.mu.Unlock()
		return closed.CHP
	case y.session != nil && !y.able:
		y.mu.Unlock()
		return ErrNoSync
	}
	y.next = append(y.next, w)
	y.ask()
	y.mu.Unlock()
	return y.await(ctx, w)
}

// WaitFor waits until the replica has come to a sequence.
func (f *Follower) WaitFor(ctx context.Context, sequence int64) error {
	y := &f.syncs
	if y.replica() >= sequence {
		return nil
	}
	w := &wait{sequence: sequence, done: make(chan struct{})}
	y.mu.Lock()
	if y.closed {
		y.mu.Unlock()
		return closed.CHP
	}
	y.aim(w)
	y.reach(y.replica())
	y.mu.Unlock()
	return y.await(ctx, w)
}

func (y *syncs) await(ctx context.Context, w *wait) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	default:
	}
	for _, list := range []*[]*wait{&y.asked, &y.next, &y.goals} {
		if i := slices.Index(*list, w); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	}
	y.noteLeast()
	return ctx.Err()
}

// begin begins a session at a server that answers, or does not.
func (y *syncs) begin(s *session, able bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.session, y.able, y.asking = s, able, false
	if !able {
		y.endAll(&y.next, ErrNoSync)
	}
	y.ask()
	y.reach(y.replica())
}

// end ends the session: what it has not answered, and answers that the replica has not come
// to, are for the next one.
func (y *syncs) end() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.session, y.asking = nil, false
	y.next = append(y.next, y.asked...)
	y.asked = y.asked[:0]
	kept := y.goals[:0]
	for _, w := range y.goals {
		if w.asks {
			y.next = append(y.next, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(y.goals[len(kept):])
	y.goals = kept
	y.noteLeast()
}

// close ends all calls, present and future.
func (y *syncs) close() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.closed = true
	for _, list := range []*[]*wait{&y.asked, &y.next, &y.goals} {
		y.endAll(list, closed.CHP)
	}
}

func (y *syncs) endAll(list *[]*wait, err error) {
	for _, w := range *list {
		w.end(err)
	}
	clear(*list)
	*list = (*list)[:0]
}

// ask sends a question if one is due. mu must be held.
func (y *syncs) ask() {
	if y.asking || len(y.next) == 0 || y.session == nil || !y.able {
		return
	}
	y.asking = true
	y.asked, y.next = y.next, y.asked[:0]
	y.send()
}

// again sends the question of a session again if it is not answered: the server drops an answer for
// which the connection has no room, as behind a long one to another question.
func (y *syncs) again(from *session) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.session == from && y.asking {
		y.send()
	}
}

// send sends a question. mu must be held.
func (y *syncs) send() {
	y.number++
	y.wire = wire.AppendSyncQuestion(y.wire[:0], y.number, !y.session.stream.counted)
	// Without room it is sent again.
	_ = hooks.SendWire(wake.Ended, y.session.dealer, y.wire, 1, nil)
}

// answer handles a message of a session if it is an answer, and reports whether it is.
func (y *syncs) answer(from *session, m zmtp.WireMessage) bool {
	number, sequence, ok := wire.ParseSync(m)
	if !ok {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.session != from || !y.asking || number != y.number {
		return true
	}
	y.asking = false
	for _, w := range y.asked {
		w.sequence = sequence - w.slack
		y.aim(w)
	}
	clear(y.asked)
	y.asked = y.asked[:0]
	y.reach(y.replica())
	y.ask()
	return true
}

// aim adds a wait that has a sequence. The caller must call reach, because the replica may have
// come so far meanwhile. mu must be held.
func (y *syncs) aim(w *wait) {
	i := len(y.goals)
	for i > 0 && y.goals[i-1].sequence > w.sequence { // nearly always the last one
		i--
	}
	y.goals = slices.Insert(y.goals, i, w)
	y.noteLeast()
}

func (y *syncs) noteLeast() {
	least := int64(math.MaxInt64)
	if len(y.goals) > 0 {
		least = y.goals[0].sequence
	}
	y.least.Store(least)
}

// came ends the waits for sequences that the replica has come to. It costs a load if there are
// none.
func (y *syncs) came(sequence int64) {
	if sequence < y.least.Load() {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.reach(sequence)
}

// reach is came. mu must be held.
func (y *syncs) reach(sequence int64) {
	n := 0
	for n < len(y.goals) && y.goals[n].sequence <= sequence {
		y.goals[n].end(nil)
		n++
	}
	if n > 0 {
		y.goals = slices.Delete(y.goals, 0, n)
		y.noteLeast()
	}
}
