package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"

	"clustermap/internal/link"
	"clustermap/internal/queue"
)

// loan is a connection as receive calls read it; see queue.Lending. The poller then wakes
// the goroutine that receives, instead of the reader which has to wake it. That
// halves the cost of a round trip, and the messages of a stream are still in the
// processor's cache when the application reads them.
//
// The reader offers the connection when it has delivered a message to a goroutine
// that waited for it, not for long. Then it sleeps until the loan ends: because
// it was not used, or the peer was slow, or another peer has come (see queue.Lending);
// because the application does not keep up with the peer, so that two goroutines that
// share the work may do better (see behind); or with the connection.
//
// The reader's chunk and decoder belong to the receive call meanwhile.
type loan struct {
	lending queue.Lending
	reader  *reader
	lent    link.Receiving

	// Guarded by the lock of the connection.
	inside bool        // a receive call reads
	kicked atomic.Bool // that call, or the one that is about to read, is to stop; also read without the mutex
	heeds  uint64      // the registration that may kick the call inside; 0: none

	// Used only by the receive call that reads.
	ctx      context.Context
	follows  bool            // the end of ctx kicks the call
	registry uint64          // number of the last registration with a context
	done     <-chan struct{} // the Done channel of that context
	stop     func() bool     // ends that registration; nil if forget has ended it
	lasting  bool            // the registration stays when the call returns
}

// errLent ends a read of a lent connection: there is a message.
var errLent = errors.New("sockets: lent connection received a message")

// receive feeds src until the connection ends, and returns why.
func (r *reader) receive(src link.Source) error {
	o := r.conn.config
	r.lends = r.conn.Stream.CanReceiveFor() && r.codec == nil && !r.traits.Raw && o.HeartbeatInterval == 0 &&
		r.pipe.socket.pattern.prepare == nil && !r.pipe.socket.Config().Conflate
	for {
		if err := r.conn.ReceiveAlive(src, o.HeartbeatTimeout); err != errLent {
			return err
		}
		if err := r.offerLoan(); err != nil {
			return err
		}
	}
}

// due says that a read is to end: there is a message for the borrower, or for
// a receive call that might become it.
func (r *reader) due() bool {
	return r.lends && r.delivered && (r.borrowed || r.awaited && r.quick && !r.behind() && r.pipe.socket.settings.recvTimeout.Load() == 0)
}

// behind says that the reading goroutine has not waited for the peer in a long while.
func (r *reader) behind() bool { return r.unwaited >= r.pipe.socket.Tuning.Behind }

// stops says that a read is to end though it has brought no message for the application.
// A peer that sends without a pause gives no other occasion.
func (l *loan) stops() bool { return l.lent.Poll || l.kicked.Load() || l.ctx.Err() != nil }

// offerLoan lends the connection, and returns when it is the reader's again, or
// why it has ended.
func (r *reader) offerLoan() error {
	s := r.pipe.socket
	if r.loan == nil {
		r.loan = &loan{reader: r}
		r.loan.lending.Init(r.loan, s.Tuning.LoanTerm)
		r.loan.lent.Init(r, link.NewSpin(r.conn.config.BusyPoll))
	}
	r.loan.kicked.Store(false) // a kick for the last call may have come after that had stopped
	return s.In.Lend(&r.loan.lending, r.conn.Gone())
}

// Receive implements queue.Borrowable.
func (l *loan) Receive(ctx context.Context) (found, again bool, err error) {
	return l.result(l.read(ctx))
}

// result returns the results of Receive after a read that has ended with err.
func (l *loan) result(err error) (found, again bool, ended error) {
	r := l.reader
	if err == link.ErrNothing {
		r.unwaited = 0
	}
	ending := r.conn.Ending()
	switch {
	case err == errLent || err == link.ErrNothing:
		return err == errLent, !r.behind() && !ending, nil
	case errors.Is(err, os.ErrDeadlineExceeded) && !ending:
		return false, false, nil // a deadline is for the reader to look into
	}
	return false, false, err
}

// read reads until there is a message, the context ends or the loan is recalled.
// With queue.NoWait it returns link.ErrNothing instead of waiting.
func (l *loan) read(ctx context.Context) error {
	r := l.reader
	l.ctx, l.lent.Poll = ctx, ctx == queue.NoWait
	if err := l.enter(); err != nil {
		return err
	}
	r.borrowed = true
	err := r.conn.Stream.ReceiveFor(&l.lent)
	r.borrowed = false
	l.leave()
	return err
}

// follow makes the end of the receive call's context kick the call. It is called
// only before the call sleeps: to register with a context costs more than a read,
// and a call that finds a message at once does not need it.
//
// The registration ends with the call. Otherwise the end of a context that was
// made for one call would start a goroutine for nothing. But when two
// registrations in a row are with the same context, the second one stays, so that
// a context that serves many calls costs them nothing more.
func (l *loan) follow() {
	done := l.ctx.Done()
	if l.follows || done == nil {
		return
	}
	l.follows = true
	registered := l.stop != nil && done == l.done
	if !registered {
		l.forget()
		l.registry++
	}
	l.heed(l.registry)
	if registered {
		// If the context has ended before, its kick was not heeded.
		if l.ctx.Err() != nil {
			l.expire(l.registry)
		}
		return
	}
	number := l.registry
	l.stop = context.AfterFunc(l.ctx, func() { l.expire(number) })
	l.done, l.lasting = done, done == l.done
}

// forget ends the registration.
func (l *loan) forget() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// heed lets the given registration kick the receive call that reads.
func (l *loan) heed(registration uint64) {
	c := l.reader.conn
	c.Lock()
	defer c.Unlock()
	l.heeds = registration
}

// expire is called when the context of a registration ends. The call that registered
// may have returned by then, and its successor must not be kicked.
func (l *loan) expire(registration uint64) {
	c := l.reader.conn
	c.Lock()
	defer c.Unlock()
	if l.heeds == registration {
		l.kickLocked()
	}
}

// Lent returns the state of the reads.
func (l *loan) Lent() *link.Receiving { return &l.lent }

// Kick implements queue.Borrowable.
func (l *loan) Kick() {
	c := l.reader.conn
	c.Lock()
	defer c.Unlock()
	l.kickLocked()
}

// kickLocked is kick with the lock of the connection held.
func (l *loan) kickLocked() {
	c := l.reader.conn
	l.kicked.Store(true)
	if l.inside {
		c.Interrupt()
	}
}

// enter begins a read, unless it is to end at once.
func (l *loan) enter() error {
	c := l.reader.conn
	c.Lock()
	defer c.Unlock()
	if c.Closed() {
		return net.ErrClosed
	}
	if l.kicked.Swap(false) {
		return os.ErrDeadlineExceeded
	}
	l.inside = true
	return nil
}

// leave ends a read, and takes a kick's deadline back.
func (l *loan) leave() {
	l.settle()
	l.ctx = nil
	if l.follows && !l.lasting {
		l.forget()
	}
	l.follows = false
}

// settle is the part of leave that needs the lock of the connection, which it locks.
func (l *loan) settle() {
	c := l.reader.conn
	c.Lock()
	defer c.Unlock()
	l.inside, l.heeds = false, 0
	if l.kicked.Swap(false) {
		c.Resume()
	}
}
