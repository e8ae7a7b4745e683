package chp

import "sync"

// echoes follows the client's own updates on their way: out to the server's
// collector, and back as KVPUBs.
//
// Updates to keys of the client's subtrees are numbered 1, 2, 3 … in the order
// in which they are sent. Over one connection to one server they come back in
// that order, so "came back up to n" is one number, and a number that is
// skipped did not make it.
//
// An epoch is one ACTIVE state. When it ends, what has not come back never
// will: it may have been applied, as part of the next snapshot, or have been
// lost. Such updates are uncertain, and are reported once: to the SetSync that
// waits for the update, or else to the next Flush.
type echoes struct {
	mu      sync.Mutex
	active  bool        // in an epoch
	sent    uint64      // the last number that was given out
	back    uint64      // the last number that came back or became uncertain
	lost    uint64      // the last number that became uncertain with no SetSync to tell
	told    uint64      // the last number for which some Flush has ended
	waiting []*echoWait // in the order of their numbers
	closed  bool
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

// begin starts an epoch.
func (e *echoes) begin() {
	e.mu.Lock()
	e.active = !e.closed
	e.mu.Unlock()
}

// end ends the present epoch: all that is on its way becomes uncertain.
func (e *echoes) end() {
	e.mu.Lock()
	e.active = false
	e.skip(e.sent, ErrUncertain)
	e.mu.Unlock()
}

// close ends all waiting, now and later.
func (e *echoes) close() {
	e.mu.Lock()
	e.active, e.closed = false, true
	e.skip(e.sent, ErrClosed)
	e.mu.Unlock()
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

// number returns the number of the update that is about to be sent; a SetSync
// passes its wait. Between two epochs it returns 0, and nothing is to be sent.
func (e *echoes) number(w *echoWait) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.active {
		return 0
	}
	e.sent++
	if w != nil {
		w.n = e.sent
		e.waiting = append(e.waiting, w)
	}
	return e.sent
}

// came notes that update n came back as the KVPUB with sequence seq. Called by
// the session, in the order of the KVPUBs, with mu held: it takes it once a
// batch.
func (e *echoes) came(n uint64, seq int64) {
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
