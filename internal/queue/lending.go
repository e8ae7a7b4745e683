package queue

import (
	"context"
	"time"
)

// Lending is a connection that its reader lends to the receive calls, so that they
// read it themselves while they wait for no other connection: the socket has one peer,
// and its receiver comes back soon for the next message.
//
// The loan ends when it was not used for a term, when the peer has kept a receive call
// waiting for a term (then looking after the loan costs more than it saves), when another
// peer comes, when the application watches the socket by other means, when the inbox is
// closed, and when the connection ends or wants its end.
//
// Inbox.mu, under which a loan is offered, taken and given back, hands over the state of
// the connection's reader.
type Lending struct {
	from  Borrowable
	term  time.Duration
	timer *time.Timer // of the term
	back  chan error  // ends the reader's sleep, with why the connection ends; capacity 1

	// Guarded by Inbox.mu.
	taken    bool // a receive call reads, or is about to
	recalled bool // and is to stop
	used     bool // it has read a message since the term began
	lapsed   bool // the term has ended while it reads: the peer is a slow one
}

// Borrowable is a connection that can be lent.
type Borrowable interface {
	// Receive reads until it has put a message into the inbox, ctx ends, or Kick is
	// called. With NoWait it reads only the bytes that are there. It reports whether it
	// has put a message, whether another receive call may read, and why the connection
	// has ended, if it has.
	Receive(ctx context.Context) (found, again bool, err error)
	// Kick makes the Receive in progress return, or the one about to begin.
	Kick()
}

// Init says which connection it is, and for how long it may go unused.
func (l *Lending) Init(from Borrowable, term time.Duration) {
	l.from, l.term = from, term
	l.timer = time.NewTimer(term)
	l.timer.Stop()
	l.back = make(chan error, 1)
}

// Lend offers a connection to the receive calls, unless the socket has other peers, is
// closed, or is watched by other means. It returns when the connection is the reader's
// again, with an error if it has ended; gone is closed when it is to end.
func (in *Inbox) Lend(l *Lending, gone <-chan struct{}) error {
	if !in.offerLoan(l) {
		return nil
	}
	defer l.timer.Stop()
	for {
		select {
		case err := <-l.back:
			return err
		case <-l.timer.C:
			if in.lapse(l, false) {
				return nil
			}
		case <-gone:
			if !in.lapse(l, true) {
				// It is taken, and the connection's end ends that; or it was given
				// back just now.
				if err := <-l.back; err != nil {
					return err
				}
			}
			return ErrClosed
		}
	}
}

func (in *Inbox) offerLoan(l *Lending) bool {
	in.lock()
	defer in.mu.Unlock()
	if in.sources != 1 || in.over || in.watch.readable != nil || in.watch.on.Load() {
		return false
	}
	l.used, l.recalled, l.lapsed = true, false, false
	l.timer.Reset(l.term)
	in.loan = l
	in.some.Wake() // a receiver that waits already may take it
	return true
}

// lapse ends a loan at the end of its term, or of the connection, unless it is
// taken. If it was used during the term, lapse begins another one instead.
func (in *Inbox) lapse(l *Lending, ending bool) bool {
	in.lock()
	defer in.mu.Unlock()
	switch {
	case in.loan != l: // given back, as the channel says
		return false
	case l.taken:
		l.lapsed = true
		return false
	case l.used && !ending:
		l.used = false
		l.timer.Reset(l.term)
		return false
	}
	in.loan = nil
	return true
}

// recall ends the loan, if there is one. mu must be held.
func (in *Inbox) recall() {
	switch l := in.loan; {
	case l == nil:
	case l.taken:
		l.recalled = true
		l.from.Kick()
	default:
		in.loan = nil
		l.back <- nil
	}
}

// borrow reads the connection that is lent, if there is one. It reports whether
// there may be a message now. mu must be held, and is released meanwhile.
func (in *Inbox) borrow(ctx context.Context) bool {
	l := in.loan
	if l == nil || l.taken || ctx != NoWait && ctx.Err() != nil {
		return false
	}
	l.taken = true
	in.mu.Unlock()
	found, again, err := l.from.Receive(ctx)
	in.lock()
	l.taken = false
	l.used = l.used || found
	if again && !l.recalled && !l.lapsed {
		in.some.Wake() // a receiver that came meanwhile may take it
	} else {
		in.loan = nil
		l.back <- err
	}
	return found || ctx != NoWait
}

// Poll reads once, without waiting, the bytes that have come while the connection was
// lent and no call read it. It reports whether there was a message.
func (in *Inbox) Poll() bool {
	in.lock()
	defer in.mu.Unlock()
	return in.borrow(NoWait)
}

// Peers counts the connected peers, of which there are n more. A new one ends the
// loan.
func (in *Inbox) Peers(n int) {
	in.lock()
	defer in.mu.Unlock()
	in.sources += n
	if n > 0 {
		in.recall()
	}
}
