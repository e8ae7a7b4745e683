package chp

import (
	"context"
	"sync"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
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
// At a node of a cluster that follows, Set returns when the leader has ordered the update, and this node
// shows it; if the context ends first, it may still be made.
//
// Set can be called before Serve, where a node of a cluster waits. On a server of a pair that is not active it returns
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
	return s.updateSync(ctx, key, value, opts)
}

// Delete deletes a key as Set updates one. It is no error if the key does not exist.
func (s *Server) Delete(ctx context.Context, key string) error {
	_, err := s.update(ctx, key, nil, nil)
	return err
}

// DeleteSync is like Delete, but waits as SetSync does.
func (s *Server) DeleteSync(ctx context.Context, key string) (seq int64, err error) {
	return s.updateSync(ctx, key, nil, nil)
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
	return s.sequencer.Flush(ctx)
}

// updateSync is update until the update is published. It returns its sequence.
func (s *Server) updateSync(ctx context.Context, key string, value []byte, opts []SetOption) (int64, error) {
	w, err := s.update(ctx, key, value, opts)
	if err == nil {
		err = s.sequencer.Published(ctx, w)
	}
	if err != nil {
		return 0, err
	}
	return w.Last, nil
}

// singles are the batches of calls of Set or Delete.
var singles = sync.Pool{New: func() any { return new(Batch) }}

func (s *Server) update(ctx context.Context, key string, value []byte, opts []SetOption) (order.Written, error) {
	if len(value) > s.opts.MaxValueSize {
		return order.Written{}, ledger.OverLimit(s.opts.MaxValueSize)
	}
	b := singles.Get().(*Batch)
	b.Reset()
	b.add(key, value, opts)
	w, err := s.apply(ctx, b)
	if cap(b.wire) <= keepSingle {
		singles.Put(b)
	}
	return w, err
}

// apply applies a batch in parts.
func (s *Server) apply(ctx context.Context, b *Batch) (order.Written, error) {
	if len(b.leases) > 0 {
		return order.Written{}, errLeaseBatch
	}
	if err := s.carries(b); err != nil {
		return order.Written{}, err
	}
	w, unfit, err := s.local.Apply(ctx, b.wire, b.spans)
	if err == nil && unfit > 0 {
		err = ledger.RefusedFor(ReasonMapFull)
	}
	return w, err
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
