package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"clustermap/internal/link"
	"clustermap/internal/queue"
)

// A loan lets a receive call read the connection itself, while it has nothing
// else to wait for: its socket has one peer, and whoever receives is back for the
// next message soon after the last. The poller then wakes that goroutine, instead
// of the reader which has to wake it. That halves what a round trip costs, and
// what comes in a stream is still in the processor's cache when it is looked at.
//
// The reader offers the loan when it has delivered a message to a goroutine that
// waited for it, not for long, and sleeps. It reads again when nobody has made use
// of the loan for a term, when the borrower has waited for the peer for as long (to
// look after a loan costs more then than it saves), when it is recalled (another
// peer comes, the application watches the socket by other means, it is closed),
// when the borrower does not keep up with the peer, so that two who share the work
// may do better (see behind), and when the connection ends.
//
// What the reader has, its chunk and decoder, belongs to the borrower meanwhile:
// the inbox's mutex, under which a loan is offered, taken and given back, hands
// it over.
type loan struct {
	reader *reader
	lent   link.Receiving
	back   chan error  // ends the reader's sleep, with why the connection ends; capacity 1
	term   *time.Timer // its end is the end of the loan, if nobody made use of it

	// Guarded by inbox.mu.
	taken    bool // a receive call reads, or is about to
	recalled bool // and is to stop
	used     bool // it was taken since the term began
	lapsed   bool // the term has ended while it was: the peer is a slow one

	// Guarded by conn.mu.
	inside bool        // a receive call reads
	kicked atomic.Bool // that call, or the one that is about to read, is to stop; also read without the mutex
	heeds  uint64      // the registration that may kick the call inside; 0: none

	// Used only by the receive call that has taken the loan.
	ctx      context.Context
	follows  bool            // the end of ctx kicks the call
	registry uint64          // number of the last registration with a context
	done     <-chan struct{} // the Done channel of that context
	stop     func() bool     // ends that registration; nil if forget has ended it
	lasting  bool            // the registration stays when the call returns
}

const (
	// loanTerm is for how long a connection may go unread while the application
	// deals with what it has received. It is checked once or twice as late.
	loanTerm = 2 * time.Millisecond
	// behindBytes is how much may be read without a wait until the peer is
	// taken to be faster than who reads: more than what the kernel has kept
	// while nobody read.
	behindBytes = 16 << 20
)

// errLent ends a read: there is a message.
var errLent = errors.New("sockets: a message for who has borrowed the connection")

// receive feeds src until the connection ends, and returns why.
func (r *reader) receive(src link.Source) error {
	o := &r.pipe.socket.opts
	r.lends = r.conn.stream.CanReceiveFor() && r.codec == nil && o.RecvTimeout == 0 && o.HeartbeatInterval == 0 &&
		o.Prepare == nil && !r.pipe.socket.in.conflate
	for {
		if err := r.conn.receiveAlive(src); err != errLent {
			return err
		}
		if err := r.offerLoan(); err != nil {
			return err
		}
	}
}

// due says that a read is to end: there is a message for the borrower, or for
// one who might become it.
func (r *reader) due() bool {
	return r.lends && r.delivered && (r.borrowed || r.pipe.in.awaited && r.quick && !r.behind())
}

// behind says that who reads has not waited for the peer in a long while.
func (r *reader) behind() bool { return r.unwaited >= r.pipe.socket.in.slack }

// stops says that a read is to end though it has brought nothing for the
// application. A peer that sends without a pause gives no other occasion.
func (l *loan) stops() bool { return l.lent.Poll || l.kicked.Load() || l.ctx.Err() != nil }

// offerLoan lends the connection, and returns when it is the reader's again, or
// why it has ended.
func (r *reader) offerLoan() error {
	in, l := &r.pipe.socket.in, r.loan
	if l == nil {
		l = &loan{reader: r, back: make(chan error, 1), term: time.NewTimer(in.term)}
		l.lent.Init(r, link.NewSpin(r.pipe.socket.opts.BusyPoll))
		r.loan = l
	} else {
		l.term.Reset(in.term)
	}
	defer l.term.Stop()
	if !in.lend(l) {
		return nil
	}
	for {
		select {
		case err := <-l.back:
			return err
		case <-l.term.C:
			if in.lapse(l) {
				return nil
			}
		case <-r.conn.gone:
			if in.lapse(l) {
				return net.ErrClosed
			}
			// It is taken, and the connection's end ends that; or it was
			// given back just now.
			if err := <-l.back; err != nil {
				return err
			}
			return net.ErrClosed
		}
	}
}

// lend offers a loan, unless there is something else to wait for.
func (in *inbox) lend(l *loan) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.sources != 1 || in.closed() || in.readable != nil || in.watch.on.Load() {
		return false
	}
	l.used, l.recalled, l.lapsed = true, false, false
	l.kicked.Store(false) // a kick for the last call may have come after that had stopped
	in.loan = l
	in.some.Wake() // whoever waits already may take it
	return true
}

// lapse ends a loan, if it is not taken and was not since the term began. Else
// it begins another term, or leaves that to the borrower.
func (in *inbox) lapse(l *loan) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.loan != l: // given back, as the channel says
		return false
	case l.taken:
		l.lapsed = true
		return false
	case l.used && !l.reader.conn.ending():
		l.used = false
		l.term.Reset(in.term)
		return false
	}
	in.loan = nil
	return true
}

// recall ends the loan there may be. mu must be held.
func (in *inbox) recall() {
	switch l := in.loan; {
	case l == nil:
	case l.taken:
		l.recalled = true
		l.kick()
	default:
		in.loan = nil
		l.back <- nil
	}
}

// borrow reads until there is a message or, with queue.NoWait, what is there; if the
// connection can be borrowed. It reports whether it is worth looking whether
// there is a message now, before waiting in another way. mu must be held, and is
// released meanwhile.
func (in *inbox) borrow(ctx context.Context) bool {
	l := in.loan
	if l == nil || l.taken || ctx != queue.NoWait && ctx.Err() != nil {
		return false
	}
	l.taken = true
	in.mu.Unlock()
	err := l.read(ctx)
	in.mu.Lock()
	in.returned(l, err)
	return ctx != queue.NoWait || err == errLent
}

// poll reads once, without waiting, what has come while the connection was lent
// and nobody read. It reports whether that was something.
func (in *inbox) poll() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.borrow(queue.NoWait)
}

// returned takes note that the borrower has read, for now. mu must be held.
func (in *inbox) returned(l *loan, err error) {
	l.taken = false
	if err == link.ErrNothing {
		l.reader.unwaited = 0
	} else {
		l.used = true
	}
	goesOn := err == errLent || err == link.ErrNothing
	if goesOn && !l.recalled && !l.lapsed && !l.reader.behind() && !l.reader.conn.ending() {
		in.some.Wake() // whoever came meanwhile may take it
		return
	}
	if goesOn || errors.Is(err, os.ErrDeadlineExceeded) && !l.reader.conn.ending() {
		err = nil // the reader goes on; a deadline is its to judge
	}
	in.loan = nil
	l.back <- err
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
	err := r.conn.stream.ReceiveFor(&l.lent)
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
	c.mu.Lock()
	defer c.mu.Unlock()
	l.heeds = registration
}

// expire is called when the context of a registration ends. The call that registered
// may have returned by then, and its successor must not be kicked.
func (l *loan) expire(registration uint64) {
	c := l.reader.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.heeds == registration {
		l.kickLocked()
	}
}

// kick makes the receive call that has taken the loan stop, now or when it begins
// to read.
func (l *loan) kick() {
	c := l.reader.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	l.kickLocked()
}

// kickLocked is kick with conn.mu held.
func (l *loan) kickLocked() {
	c := l.reader.conn
	l.kicked.Store(true)
	if l.inside && !c.closed {
		_ = c.stream.Conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, which needs none
	}
}

// enter begins a read, unless it is to end at once.
func (l *loan) enter() error {
	c := l.reader.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
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

// settle is the part of leave that needs conn.mu, which it locks.
func (l *loan) settle() {
	c := l.reader.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	l.inside, l.heeds = false, 0
	if !l.kicked.Swap(false) || c.closed {
		return
	}
	var until time.Time
	if c.life.armed.Load() {
		until = c.life.until
	}
	_ = c.stream.Conn.SetReadDeadline(until)
}

// joined and parted count the peers.
func (in *inbox) joined() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sources++
	in.recall()
}

func (in *inbox) parted() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sources--
}
