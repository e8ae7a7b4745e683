package submit

import (
	"context"
	"slices"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/buf"
	"clustermap/internal/closed"
	"clustermap/internal/kvmsg"
)

// Put stages one KVSET, which was checked, and may use the capacity of props. It waits until
// there is a session and room. wait is a new wait for the update, or nil.
func (w *Writer) Put(ctx context.Context, key, value, props []byte, wait *ledger.Wait) error {
	w.mu.Lock()
	if err := w.enqueue(ctx, key, value, props, wait); err != nil {
		return err
	}
	if w.asleep {
		w.push(wait != nil)
	} else {
		w.mu.Unlock() // run sends it
	}
	return nil
}

// PutAll is Put for the records of spans, of which the largest value has a size. waits has
// one wait for each of them, or is nil. If that value is too large for the server, nothing
// is staged.
func (w *Writer) PutAll(ctx context.Context, wire []byte, spans []buf.Span, largest int, waits []ledger.Wait) error {
	var space [128]byte // on the stack
	props := space[:0]
	w.mu.Lock()
	for w.server == nil && !w.closed { // enqueue would wait, but not check the largest value first
		w.mu.Unlock()
		if err := w.opts.Wait(ctx); err != nil {
			return err
		}
		w.mu.Lock()
	}
	if w.server != nil {
		if err := w.checkSize(largest); err != nil {
			w.mu.Unlock()
			return err
		}
	}
	for i, span := range spans {
		r := kvmsg.Record(wire[span.Start:span.End])
		props = append(props[:0], r.Props()...)
		var wait *ledger.Wait
		if waits != nil {
			wait = &waits[i]
		}
		if err := w.enqueue(ctx, r.Key(), r.Value(), props, wait); err != nil {
			return err
		}
		w.wakeRun()
	}
	w.mu.Unlock()
	return nil
}

// enqueue stages one KVSET. It is called with mu held, and returns with it held unless it
// returns an error. The caller wakes run.
func (w *Writer) enqueue(ctx context.Context, key, value, props []byte, wait *ledger.Wait) error {
	foreign := !w.opts.Subtrees.Contains(key)
	given := len(props)
	for {
		switch {
		case w.closed:
			w.mu.Unlock()
			return closed.CHP
		case w.server == nil:
			w.mu.Unlock()
			if err := w.opts.Wait(ctx); err != nil {
				return err
			}
			w.mu.Lock()
			continue
		}
		if err := w.checkSize(len(value)); err != nil {
			w.mu.Unlock()
			return err
		}
		if w.server.Uplink == nil {
			if err := w.open(); err != nil {
				w.mu.Unlock()
				return err
			}
		}
		props = props[:given]
		if !w.server.Ours && len(value) > 0 {
			props = appendNoTTL(props)
		}
		size := kvmsg.RecordSize(len(key), kvmsg.UUIDSize, len(props), len(value))
		if !w.hasRoom(size) {
			if err := w.waitRoom(ctx); err != nil {
				return err
			}
			continue
		}
		number := w.account.Stage(foreign, wait)
		if number == 0 {
			w.mu.Unlock()
			return closed.CHP
		}
		w.append(size, number, key, props, value)
		return nil
	}
}

// appendNoTTL appends a ttl of 0 unless props have a ttl. The guide's C clients always
// send one. Without it their server keeps the ttl of the previous update, and the key
// would expire.
func appendNoTTL(props []byte) []byte {
	if len(props) == 0 {
		return noTTL
	}
	if _, ok := kvmsg.Property(props, "ttl"); ok {
		return props
	}
	return append(props, noTTL...)
}

var noTTL = slices.Clip([]byte("ttl=0\n")) // not changed

// checkSize returns an error if the server does not accept a value of the given size. mu
// must be held, and there must be a session.
func (w *Writer) checkSize(size int) error {
	if size <= w.server.MaxValue { // alone, so that it is inlined
		return nil
	}
	return w.overSize(size)
}

func (w *Writer) overSize(size int) error {
	switch {
	case w.server.MaxValue > 0:
		return ledger.OverLimit(w.server.MaxValue)
	case size > w.opts.MaxValue:
		return kvmsg.ErrValueTooLarge
	}
	return nil
}

// waitRoom waits until there may be room. It is called with mu held, and returns with
// mu held unless it returns an error.
func (w *Writer) waitRoom(ctx context.Context) error {
	if w.room == nil {
		w.room = make(chan struct{})
	}
	room := w.room
	w.wakeRun() // to ask
	w.mu.Unlock()
	select {
	case <-room:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	return nil
}
