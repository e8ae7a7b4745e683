package chp

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/buf"
)

// Set updates a key in the server's own process. The update is treated like one of a
// client: it gets a sequence, goes to the log on disk and to the other server of a pair
// as the options say, and is published to all clients. The rules for key, value and
// options are those of [Client.Set]. Set does not retain key or value.
//
// When Set returns, the update has its place in the server's order. Get returns its value, or
// that of a later update, once it is committed and published: with a log of commit.Always
// when it is on disk, and in a pair that is in sync when the other server has it; otherwise
// at once. Set does not wait for that: see SetSync and Flush.
//
// Set waits, as clients do, while slow subscribers, the log, or the other server of a
// pair cannot keep up (see ServerOptions.SlowestIntake), and during a handover. If the
// context ends first, nothing is updated.
//
// Set can be called before Serve. On a server of a pair that is not active it returns
// ErrStandby; only requests of clients, not Set, make a server without its partner
// active. If the map has no room, the error is ErrRefused with ReasonMapFull. After
// Close it is ErrClosed.
func (s *Server) Set(ctx context.Context, key string, value []byte, opts ...SetOption) error {
	if len(value) == 0 {
		return ErrEmptyValue
	}
	_, err := s.update(ctx, key, value, opts)
	return err
}

// SetSync is like Set, but also waits until the update is published, and returns its
// sequence. With commit.Always it is then on disk, and with a pair that is in sync the
// other server has it.
//
// If the context ends, the server is closed or its log fails while SetSync waits, the
// update may still be published. If the server stops being the active one of its pair,
// the error is ErrStandby, and also ErrUncertain because the other server may have the
// update.
func (s *Server) SetSync(ctx context.Context, key string, value []byte, opts ...SetOption) (seq int64, err error) {
	if len(value) == 0 {
		return 0, ErrEmptyValue
	}
	w, err := s.update(ctx, key, value, opts)
	if err == nil {
		err = s.published(ctx, w)
	}
	return w.known(err)
}

// Delete deletes a key as Set updates one. It is no error if the key does not exist.
func (s *Server) Delete(ctx context.Context, key string) error {
	_, err := s.update(ctx, key, nil, nil)
	return err
}

// DeleteSync is like Delete, but waits as SetSync does.
func (s *Server) DeleteSync(ctx context.Context, key string) (seq int64, err error) {
	w, err := s.update(ctx, key, nil, nil)
	if err == nil {
		err = s.published(ctx, w)
	}
	return w.known(err)
}

// Apply makes the updates of a batch, in order, as if Set and Delete were called for
// each, and waits as Set does. Apply does not change the batch. To wait until the updates
// are published, call Flush.
//
// If the batch has an error, Apply returns it and updates nothing. If the map has no
// room for some of the updates, it makes the others and returns ErrRefused with
// ReasonMapFull. After any other error a first part of the batch may have been applied.
func (s *Server) Apply(ctx context.Context, b *Batch) error {
	_, err := s.apply(ctx, b)
	return err
}

// Flush waits until all updates that the server has accepted before the call, from its
// own process and from clients, are published. Its errors are those of SetSync. If the server
// has stopped being the active one of its pair before it published some of them, and no
// Flush was waiting, the next Flush returns the error.
func (s *Server) Flush(ctx context.Context) error {
	w, err := s.sequencer.flush()
	if err != nil {
		return err
	}
	if err = s.published(ctx, w); err == errUnpublished {
		_, _ = s.sequencer.flush() // this call reports it
	}
	return err
}

// written identifies an update that a sequencer has accepted.
type written struct {
	last int64  // its sequence
	term uint64 // sequencer.ends at that time
}

// known returns the sequence, and 0 with an error.
func (w written) known(err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return w.last, nil
}

// single is the batch of one call of Set or Delete.
type single struct{ Batch }

var singles = sync.Pool{New: func() any { return new(single) }}

// keepSingle is the largest single that is kept, in bytes.
const keepSingle = 64 << 10

func (s *Server) update(ctx context.Context, key string, value []byte, opts []SetOption) (written, error) {
	if len(value) > s.opts.MaxValueSize {
		return written{}, ledger.OverLimit(s.opts.MaxValueSize)
	}
	b := singles.Get().(*single)
	b.Reset()
	b.add(key, value, opts)
	w, err := s.apply(ctx, &b.Batch)
	if cap(b.wire) <= keepSingle {
		singles.Put(b)
	}
	return w, err
}

// localPart bounds the part of a batch that is applied under one hold of the
// sequencer's mutex, in bytes: as much as a client's connection delivers at a time, so
// that clients and heartbeats do not wait long.
const localPart = 128 << 10

// apply applies a batch in parts.
func (s *Server) apply(ctx context.Context, b *Batch) (w written, err error) {
	if err := s.carries(b); err != nil {
		return written{}, err
	}
	if len(b.spans) == 0 {
		return s.sequencer.written(), nil
	}
	full := false
	for spans := b.spans; len(spans) > 0; {
		n := 1
		for n < len(spans) && spans[n].End-spans[0].Start <= localPart {
			n++
		}
		part := spans[:n]
		spans = spans[n:]
		if err := s.pace(ctx, buf.Extent(part)); err != nil {
			return written{}, err
		}
		unfit, again := 0, true
		for again {
			if w, unfit, again, err = s.sequencer.acceptLocal(b.wire, part); err != nil {
				return written{}, err
			}
			if again {
				if err := s.room(ctx); err != nil {
					return written{}, err
				}
			}
		}
		full = full || unfit > 0
	}
	if full {
		return w, ledger.RefusedFor(ReasonMapFull)
	}
	return w, nil
}

// carries returns an error if the server cannot take all of a batch.
func (s *Server) carries(b *Batch) error {
	switch {
	case b.err != nil:
		return b.err
	case b.largest > s.opts.MaxValueSize:
		return ledger.OverLimit(s.opts.MaxValueSize)
	case !s.dialect.Three:
		return nil
	}
	for i := range b.spans {
		r := b.record(i)
		if err := s.dialect.Carries(r.Value(), r.Props()); err != nil {
			return err
		}
	}
	return nil
}

// local delays the updates of this process as the collector delays those of clients.
type local struct {
	mu   sync.Mutex
	pace *pacer
	turn chan struct{} // capacity 1: held by the goroutine that is delayed, so that delays add up

	waiting atomic.Int64 // goroutines that wait until the sequencer accepts updates
}

func (l *local) init(p *pacer) { l.pace, l.turn = p, make(chan struct{}, 1) }

// next is pacer.next for several goroutines.
func (l *local) next(size int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pace.next(size, time.Now())
}

// pace waits before a batch of size bytes if subscribers need it.
func (s *Server) pace(ctx context.Context, size int) error {
	wait := s.local.next(size)
	if wait == 0 {
		return nil
	}
	select {
	case s.local.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing.Done():
		return ErrClosed
	}
	defer func() { <-s.local.turn }()
	either, stop := s.untilClosed(ctx)
	defer stop()
	for ; wait > 0; wait = s.local.next(0) {
		if !pause(either, wait) {
			return cmp.Or(ctx.Err(), ErrClosed)
		}
	}
	return nil
}

// room waits until the sequencer may accept another batch.
func (s *Server) room(ctx context.Context) error {
	q := &s.sequencer
	s.local.waiting.Add(1)
	defer s.local.waiting.Add(-1)
	for more := q.full(); more != nil; more = q.full() {
		select {
		case <-more:
		case <-q.journal.Failed():
			return nil // acceptLocal returns the error
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing.Done():
			return ErrClosed
		}
	}
	either, stop := s.untilClosed(ctx)
	defer stop()
	if err := q.journal.Room(either); either.Err() != nil && err != nil {
		return cmp.Or(ctx.Err(), ErrClosed)
	}
	return nil // if the log has failed, acceptLocal returns its error
}

// untilClosed returns a context that also ends when the server closes.
func (s *Server) untilClosed(ctx context.Context) (_ context.Context, stop func()) {
	ctx, end := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.closing, end)
	return ctx, func() {
		unhook()
		end()
	}
}

// acceptLocal orders updates, and publishes them if nothing has to be waited for, that a Batch has checked. It does
// not change the spans, and returns the number of updates that the map has no room for.
// If again is true, it did nothing: the caller must call room, and acceptLocal again.
func (q *sequencer) acceptLocal(wire []byte, spans []buf.Span) (w written, unfit int, again bool, err error) {
	if again, err = q.journalFull(); again || err != nil {
		return written{}, 0, again, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return written{}, 0, false, ErrClosed
	case q.passive:
		return written{}, 0, false, ErrStandby
	case q.halted != 0 || q.held.bytes >= maxHeld:
		return written{}, 0, true, nil
	}
	if !q.fits(spans) {
		return written{}, 0, true, nil
	}
	q.scratch.own = append(q.scratch.own[:0], spans...) // acceptNow changes them
	refused, _ := q.acceptNow(wire, q.scratch.own, sender{})
	if cap(q.scratch.own) > keepOwn {
		q.scratch.own = nil
	}
	return q.writtenNow(), len(refused), false, nil
}

// keepOwn is the largest capacity of sequencer.own that is kept.
const keepOwn = 4096

// journalFull reports whether the journal has no room for another batch, or has failed.
func (q *sequencer) journalFull() (full bool, err error) {
	switch err := q.journal.Room(ended); {
	case err == nil:
		return false, nil
	case err == context.Canceled: // ended is
		return true, nil
	default:
		return false, q.logError(err)
	}
}

// logError returns the error for an update when the log has ended with err.
func (q *sequencer) logError(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	return fmt.Errorf("chp: the log failed: %w", err)
}

// written returns the last update that was accepted.
func (q *sequencer) written() written {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writtenNow()
}

// flush returns the last update that was accepted. If updates were lost when an earlier
// term ended, it returns an error instead, once.
func (q *sequencer) flush() (written, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ends.lost {
		q.ends.lost = false
		return written{}, errUnpublished
	}
	return q.writtenNow(), nil
}

func (q *sequencer) writtenNow() written {
	if q.passive { // what is held is not published by this server
		return written{q.state.Last(), q.ends.count}
	}
	return written{q.order.last, q.ends.count}
}

// published waits until an update is published.
func (s *Server) published(ctx context.Context, w written) error {
	for {
		more, err := s.sequencer.outcome(w)
		if more == nil {
			return err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.sequencer.journal.Failed(): // a server that does not serve may never be closed
			return s.sequencer.logError(s.sequencer.journal.Room(ended))
		case <-s.closing.Done():
			return ErrClosed
		}
	}
}

// errUnpublished is returned for an update that was not published when the server
// stopped being the active one.
var errUnpublished = fmt.Errorf("%w: %w", ErrUncertain, ErrStandby)

// outcome returns whether an update was published, or a channel that is closed when the
// caller should ask again.
func (q *sequencer) outcome(w written) (more <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.ends.count == w.term && q.state.Last() >= w.last, q.ends.count == w.term+1 && q.ends.kept >= w.last:
		return nil, nil
	case q.ends.count != w.term:
		return nil, errUnpublished
	}
	return q.more(), nil
}

// endTerm records that the server stops being the active one: held updates will not be
// published. mu must be held.
func (q *sequencer) endTerm() {
	q.ends.count++
	q.ends.kept = q.state.Last()
	q.ends.lost = q.ends.lost || !q.held.empty()
}

// shut refuses updates of this process and ends the watches.
func (q *sequencer) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.watches.Close()
}
