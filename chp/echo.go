package chp

import (
	"sync"
	"sync/atomic"
)

// echoes follows the client's own updates on their way: out to the server's
// collector, and back as KVPUBs.
//
// Updates to keys of the client's subtrees are numbered 1, 2, 3 … in the order
// in which they are sent, one at a time. Over one connection to one server
// they come back in that order, so "came back up to n" is one number, and a
// number that is skipped did not make it.
//
// An epoch is one ACTIVE state. When it ends, what has not come back never
// will: it may have been applied, as part of the next snapshot, or have been
// lost. Such updates are uncertain, and are reported once: to the SetSync that
// waits for the update, or else to the next Flush.
//
// The number of the update that is being sent (flying) is not yet part of
// sent: its Send may wait long, and may give up, in which case the number is
// given out again. Its echo can overtake the return of its Send.
type echoes struct {
	mu      sync.Mutex
	epochs  uint64      // how many there have been
	epoch   uint64      // the present one, 0 between two
	server  int         // index of the server that it is with
	sent    uint64      // the last number that was sent
	back    uint64      // the last number that came back or became uncertain
	lost    uint64      // the last number that became uncertain with no SetSync to tell
	told    uint64      // the last number for which some Flush has ended
	flying  uint64      // the number being sent, 0 if none
	flyer   *echoWait   // its SetSync, if it is one
	abort   func()      // ends its Send, if that waits
	waiting []*echoWait // in the order of their numbers
	closed  bool

	// target is epoch and server in one word, for updates that are not counted:
	// 0 between two epochs. Written under mu.
	target atomic.Uint64
}

// serverBits of target are the index of the server.
const serverBits = 16

// setTarget follows epoch, server and closed. mu must be held.
func (e *echoes) setTarget() {
	if e.closed {
		e.epoch = 0
	}
	if e.epoch == 0 {
		e.target.Store(0)
		return
	}
	e.target.Store(e.epoch<<serverBits | uint64(e.server))
}

// echoWait is a SetSync or Flush that waits for update n to come back.
type echoWait struct {
	n    uint64
	sync bool          // SetSync: asks for n itself, not for those before
	done chan struct{} // closed when seq and err are set
	seq  int64         // sequence of the update's KVPUB
	err  error
}

func (w *echoWait) finish(seq int64, err error) {
	w.seq, w.err = seq, err
	close(w.done)
}

// ticket is the leave to send one update.
type ticket struct {
	n      uint64 // the update's number
	epoch  uint64
	server int // index of the server to send it to
}

// begin starts an epoch with a server.
func (e *echoes) begin(server int) {
	e.mu.Lock()
	e.epochs++
	e.epoch, e.server = e.epochs, server
	e.setTarget()
	e.mu.Unlock()
}

// end ends the present epoch: all that is on its way becomes uncertain. A Send
// that is still waiting is made to give up, so that it can try again in the
// next epoch, perhaps with another server.
func (e *echoes) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch = 0
	e.setTarget()
	e.skip(e.sent, ErrUncertain)
	if e.abort != nil {
		e.abort()
	}
}

// close ends all waiting, now and later.
func (e *echoes) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.setTarget()
	e.skip(e.sent, ErrClosed)
	if e.abort != nil {
		e.abort()
	}
}

// skip makes the updates up to n uncertain and tells those who wait for them.
// mu must be held.
func (e *echoes) skip(n uint64, reason error) {
	if n <= e.back {
		return
	}
	untold := n - e.back
	for len(e.waiting) > 0 && e.waiting[0].n <= n {
		w := e.waiting[0]
		e.waiting = e.waiting[1:]
		if w.sync {
			untold--
		} else {
			e.told = max(e.told, w.n)
		}
		w.finish(0, reason)
	}
	if untold > 0 {
		e.lost = n
	}
	e.back = n
}

// reserve returns the ticket for the update that is about to be sent. A
// SetSync passes its wait. An update that is not counted, because it will not
// come back, gets no number. Between two epochs ok is false, and nothing is to
// be sent. Every reserve is followed by sentOff or unsent before the next.
func (e *echoes) reserve(counted bool, w *echoWait) (t ticket, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch == 0 || e.closed {
		return ticket{}, false
	}
	if !counted {
		return ticket{0, e.epoch, e.server}, true
	}
	e.flying, e.flyer = e.sent+1, w
	if w != nil {
		w.n = e.flying
	}
	return ticket{e.flying, e.epoch, e.server}, true
}

// hold notes how to end the Send of the holder of a ticket, which is about to
// wait; release forgets it.
func (e *echoes) hold(t ticket, abort func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.abort = abort
	if t.epoch != e.epoch || e.closed {
		abort()
	}
}

func (e *echoes) release() {
	e.mu.Lock()
	e.abort = nil
	e.mu.Unlock()
}

// unsent takes back the number being sent: its update reached nobody.
func (e *echoes) unsent() {
	e.mu.Lock()
	e.flying, e.flyer = 0, nil
	e.mu.Unlock()
}

// sentOff notes that the update being sent is on its way.
func (e *echoes) sentOff(t ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, w := e.flying, e.flyer
	e.flying, e.flyer = 0, nil
	if n == 0 {
		return // its echo was faster
	}
	e.sent = n
	if w != nil {
		e.waiting = append(e.waiting, w)
	}
	switch {
	case e.closed:
		e.skip(n, ErrClosed)
	case t.epoch != e.epoch:
		e.skip(n, ErrUncertain)
	}
}

// came notes that update n came back as the KVPUB with sequence seq. Called by
// the session, in the order of the KVPUBs, with mu held: it takes it once a
// batch.
func (e *echoes) came(n uint64, seq int64) {
	if n == e.flying && n != 0 {
		e.sent = n
		if e.flyer != nil {
			e.waiting = append(e.waiting, e.flyer)
		}
		e.flying, e.flyer = 0, nil
	}
	if n <= e.back || n > e.sent {
		return // of an ended epoch, or from a peer that invents
	}
	e.skip(n-1, ErrUncertain)
	e.back = n
	for len(e.waiting) > 0 && e.waiting[0].n == n {
		w := e.waiting[0]
		e.waiting = e.waiting[1:]
		if w.sync {
			w.finish(seq, nil)
		} else {
			w.finish(seq, e.verdict(n))
		}
	}
}

// verdict is what a Flush up to n ends with. mu must be held.
func (e *echoes) verdict(n uint64) error {
	uncertain := e.lost > e.told
	e.told = max(e.told, n)
	if uncertain {
		return ErrUncertain
	}
	return nil
}

// flush returns a wait for all updates sent so far, or nil and the verdict if
// there is nothing to wait for.
func (e *echoes) flush() (*echoWait, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.back >= e.sent:
		return nil, e.verdict(e.sent)
	}
	w := &echoWait{n: e.sent, done: make(chan struct{})}
	e.waiting = append(e.waiting, w)
	return w, nil
}

// forget takes back a wait whose caller goes away.
func (e *echoes) forget(w *echoWait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, other := range e.waiting {
		if other == w {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			return
		}
	}
}
