package chp

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"sync/atomic"
	"unsafe"

	"clustermap/chp/internal/subtree"
)

// Source is a map that a [View] reads and writes: a [*Client], or a [*Server] in its own
// process.
type Source interface {
	Watch(subtrees ...string) (*Watch, error)
	Set(ctx context.Context, key string, value []byte, opts ...SetOption) error
	Delete(ctx context.Context, key string) error
	Update(ctx context.Context, key string, change func(old []byte) ([]byte, error), opts ...SetOption) (seq int64, err error)
}

// View is a part of a map as Go values: those of a [Client] or a [Server], decoded once
// for each change. Get takes no lock and does not decode.
//
//	flags, err := chp.NewView(client, "/flags/", chp.ViewOptions[Flag]{})
//	...
//	if f, ok := flags.Get("/flags/dark-mode"); ok && f.On {
//	...
//	err = flags.Set(ctx, "/flags/dark-mode", Flag{On: true})
//
// Keys are those of the map, with the prefix.
//
// One goroutine watches the source, decodes each new value, stores it, and calls
// OnChange. So the view follows the source after a moment, change by change: SetSync of
// the client does not wait for it, and after the client has fetched a new snapshot two
// calls of Get can show different states. If OnChange is slow, the view falls behind.
// When it is too far behind, it skips the changes in between: it reads the source's
// present state and applies the differences. Memory is bounded by the number of keys and
// by the source's WatchQueue.
//
// After a restart of a server without its map the keys are gone, with CauseResync, until their
// owners set them again. Those of registrations come back as soon as their clients have
// ([Client.KeepAlive]): before taking one for lost, wait for a time to live. A server with a
// log, and the other one of a pair, has the keys.
//
// A value that does not decode is reported to OnError. The key then keeps the last value
// that did, if there was one, until it gets another value or is deleted.
//
// A T that Get returns shares the memory that it points to, such as slices and maps, with
// the view and all other callers: do not change it.
//
// All methods are safe for concurrent use.
// The view ends with its source, or with Close; it then keeps its last values.
type View[T any] struct {
	source   Source
	prefix   string
	subtrees subtree.Set
	opts     ViewOptions[T]
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	synced   chan struct{} // closed when the first state is complete
	ended    chan struct{} // closed when run has returned
	err      error         // why run has ended

	table     viewTable[T]
	changes   atomic.Uint64
	undecoded atomic.Uint64
	rescans   atomic.Uint64

	// Owned by run.
	round    uint64 // the number of watches before the present one
	scanned  bool   // the present watch has reported its first state
	complete bool   // synced is closed
}

// ViewOptions configures a [View]. The zero value is usable.
type ViewOptions[T any] struct {
	// Codec encodes and decodes values. The default is JSONCodec.
	Codec Codec[T]

	// OnChange, if set, is called for each key of the first state, with CauseSet, and
	// then for each change: when a key has a new value, and when it is gone. Setting the
	// same bytes again, such as to renew a time to live, is no change. Calls are in the
	// source's order, one at a time, from the view's goroutine, which holds no lock. The
	// view is in the state after the change, and waits for the call. OnChange may call
	// the methods of the view and of the source, except the view's Close and WaitSynced.
	OnChange func(ViewChange[T])

	// OnError, if set, is called for a value that does not decode. It is called like
	// OnChange.
	OnError func(*DecodeError)
}

// ViewChange is a change of one key in a [View].
type ViewChange[T any] struct {
	Key string

	// Old and New are the values before and after the change: nil if the key did not
	// exist, or had no valid value. They point to the values of the view, which must not
	// be changed.
	Old, New *T

	// Cause is the reason of the change, as in Event. It is CauseResync, too, for changes
	// made while the view was too far behind.
	Cause    Cause
	Sequence int64 // as in Event

	// Properties are those of the update, as in Event: valid until OnChange returns. There
	// are none for a key that is gone because of CauseResync.
	Properties Properties
}

// DecodeError reports a value in a [View] that does not decode.
type DecodeError struct {
	Key      string
	Sequence int64 // of the update; 0 from View.Update
	Err      error // of Codec.Unmarshal
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("chp: the value of %q does not decode: %v", e.Key, e.Err)
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *DecodeError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// OutsideViewError reports a key that is not in a [View]. errors.Is reports it as
// ErrOutsideSubtrees. Retrying fails again.
type OutsideViewError struct {
	Key    string
	Prefix string // of the view
}

func (e *OutsideViewError) Error() string {
	text := fmt.Sprintf("chp: key %.255q is outside of the view of %q", e.Key, e.Prefix)
	if !subtree.IsTree(e.Prefix) {
		text += ", a single key"
	}
	return text
}

// Is reports whether target is ErrOutsideSubtrees.
func (e *OutsideViewError) Is(target error) bool { return target == ErrOutsideSubtrees }

// NewView returns a view of a part of a map: of "" (the whole map), a subtree such as
// "/flags/", or a single key. The slash at the end makes the difference: "/flags/" is
// every key that begins with these bytes, and "/flags" only the key of that name. A
// subtree begins and ends with a slash and has at least one byte in between, which may be
// a slash, too: "/flags//" is valid, and has only keys that begin with both slashes. The
// source need not have a state yet; see [View.WaitSynced]. The caller must close the view.
//
// Errors are those of [Client.Watch].
func NewView[T any](source Source, prefix string, o ViewOptions[T]) (*View[T], error) {
	if o.Codec == nil {
		o.Codec = JSONCodec[T]{}
	}
	w, err := source.Watch(prefix)
	if err != nil {
		return nil, err
	}
	v := &View[T]{
		source: source, prefix: prefix, subtrees: subtree.New([]string{prefix}), opts: o,
		synced: make(chan struct{}), ended: make(chan struct{}),
	}
	v.table.init()
	v.ctx, v.cancel = context.WithCancel(context.Background())
	go v.run(w)
	return v, nil
}

// Close ends the view and waits for a callback that is running. Later calls do nothing.
func (v *View[T]) Close() error {
	v.cancel()
	<-v.ended
	return nil
}

// WaitSynced waits until the view has the source's first state; OnChange was called for
// all of its keys. If the context ends first and the source is a client that has no
// server, the error is that of [Client.WaitActive]. After Close, or when the source has
// closed, it is ErrClosed.
func (v *View[T]) WaitSynced(ctx context.Context) error {
	select {
	case <-v.synced:
		return nil
	default:
	}
	select {
	case <-v.synced:
		return nil
	case <-v.ended:
		return v.err
	case <-ctx.Done():
	}
	if c, ok := v.source.(*Client); ok {
		if err := c.WaitActive(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Get returns the value of key, and whether the key has a valid one. It takes no lock and
// allocates nothing.
func (v *View[T]) Get(key string) (value T, ok bool) {
	if p := v.table.get(key); p != nil {
		return *p, true
	}
	return value, false
}

// Len returns the number of keys with a valid value.
func (v *View[T]) Len() int { return int(v.table.keys.Load()) }

// All returns an iterator over all keys and values, in no particular order. It takes no
// lock: a change during the loop shows if the loop has not yet reached its key. So, unlike
// [Client.All], it does not see one state.
func (v *View[T]) All() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		v.table.each(func(it *viewItem[T]) bool {
			p := it.value.Load()
			return p == nil || yield(it.key, *p)
		})
	}
}

// Set encodes a value and sets it in the source, which waits as its Set does. Get returns
// the value when the update has come back. For a key outside of the view the error is an
// *OutsideViewError.
func (v *View[T]) Set(ctx context.Context, key string, value T, opts ...SetOption) error {
	if !v.subtrees.Contains(bytesOf(key)) {
		return &OutsideViewError{key, v.prefix}
	}
	encoded, err := v.encode(key, value)
	if err != nil {
		return err
	}
	return v.source.Set(ctx, key, encoded, opts...)
}

func (v *View[T]) encode(key string, value T) ([]byte, error) {
	encoded, err := v.opts.Codec.Marshal(value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("chp: the value of %q does not encode: %w", key, err)
	case len(encoded) == 0:
		return nil, ErrEmptyValue
	}
	return encoded, nil
}

// Update changes a value in the source, as [Client.Update] does: it calls change with the present
// value, or the zero T and false if the key does not exist, and sets what that returns. If another update comes
// first, it calls change again with the new value; so two who change one value at the same time lose
// nothing. It returns the sequence of the update, which the view shows soon.
//
// The old value is decoded for the call, from the source and not the view: change may change what
// it points to. If it does not decode, the error is a *DecodeError; after it, or an error of
// change, nothing is changed. The time to live and the properties are those of opts. For a key outside of
// the view the error is an *OutsideViewError.
func (v *View[T]) Update(ctx context.Context, key string, change func(old T, ok bool) (T, error), opts ...SetOption) (seq int64, err error) {
	if !v.subtrees.Contains(bytesOf(key)) {
		return 0, &OutsideViewError{key, v.prefix}
	}
	return v.source.Update(ctx, key, func(encoded []byte) ([]byte, error) {
		var old T
		ok := len(encoded) > 0
		if ok {
			if err := v.opts.Codec.Unmarshal(encoded, &old); err != nil {
				return nil, &DecodeError{Key: key, Err: err}
			}
		}
		value, err := change(old, ok)
		if err != nil {
			return nil, err
		}
		return v.encode(key, value)
	}, opts...)
}

// Delete deletes a key in the source, as Set sets it.
func (v *View[T]) Delete(ctx context.Context, key string) error {
	if !v.subtrees.Contains(bytesOf(key)) {
		return &OutsideViewError{key, v.prefix}
	}
	return v.source.Delete(ctx, key)
}

// ViewStats holds a view's counters at one moment.
type ViewStats struct {
	Keys      int
	Changes   uint64 // values stored or removed
	Undecoded uint64 // values that did not decode
	Rescans   uint64 // times that the view was too far behind and skipped changes
}

// Stats returns the current counters.
func (v *View[T]) Stats() ViewStats {
	return ViewStats{Keys: v.Len(), Changes: v.changes.Load(), Undecoded: v.undecoded.Load(), Rescans: v.rescans.Load()}
}

// run follows the source. When a watch was not read fast enough, another one follows,
// which begins with the state of that moment.
func (v *View[T]) run(w *Watch) {
	defer close(v.ended)
	for {
		err := v.follow(w)
		_ = w.Close() // closing a watch does not fail
		if errors.Is(err, ErrLagged) {
			v.rescans.Add(1)
			w, err = v.source.Watch(v.prefix)
		}
		if err != nil {
			v.err = err
			return
		}
		v.round++
		v.scanned = false
	}
}

// follow applies the events of a watch until it ends.
func (v *View[T]) follow(w *Watch) error {
	apply := func(e Event) bool {
		v.apply(e)
		return v.ctx.Err() == nil
	}
	for {
		if err := w.NextBatch(v.ctx, apply); v.ctx.Err() != nil {
			return ErrClosed
		} else if err != nil {
			return err
		}
	}
}

func (v *View[T]) apply(e Event) {
	switch e.Op {
	case OpSet:
		if v.complete && !v.scanned {
			e.Cause = CauseResync
		}
		v.set(e)
	case OpDelete:
		key := unsafe.String(unsafe.SliceData(e.Key), len(e.Key))
		if it := v.table.find(maphash.String(v.table.seed, key), key); it != nil && it.present {
			v.remove(it, e)
		}
	case OpSynced:
		v.scanned = true
		if v.round > 0 {
			v.sweep(e.Sequence)
		}
		if !v.complete {
			v.complete = true
			close(v.synced)
		}
	}
}

// set handles a value. That of a key can be the same as before: in a new first state, and
// when an update sets it again. It is recognized by a hash of 64 bits with a random seed:
// keeping all encoded values would need about as much memory as the values.
func (v *View[T]) set(e Event) {
	key := unsafe.String(unsafe.SliceData(e.Key), len(e.Key)) // for this call
	it, known := v.table.item(maphash.String(v.table.seed, key), key, func() string { return strings.Clone(key) })
	it.round = v.round
	sum := maphash.Bytes(v.table.seed, e.Value)
	if known && it.sum == sum {
		return
	}
	it.sum = sum
	value := new(T)
	if err := v.opts.Codec.Unmarshal(e.Value, value); err != nil {
		v.undecoded.Add(1)
		if v.opts.OnError != nil {
			v.opts.OnError(&DecodeError{it.key, e.Sequence, err})
		}
		return
	}
	old := v.table.set(it, value)
	v.changed(ViewChange[T]{Key: it.key, Old: old, New: value, Cause: e.Cause, Sequence: e.Sequence, Properties: e.Properties})
}

func (v *View[T]) remove(it *viewItem[T], e Event) {
	if old := v.table.remove(it); old != nil {
		v.changed(ViewChange[T]{Key: it.key, Old: old, Cause: e.Cause, Sequence: e.Sequence, Properties: e.Properties})
	}
}

// sweep removes the keys that a new first state does not have.
func (v *View[T]) sweep(sequence int64) {
	v.table.each(func(it *viewItem[T]) bool {
		if it.present && it.round != v.round {
			v.remove(it, Event{Cause: CauseResync, Sequence: sequence})
		}
		return v.ctx.Err() == nil
	})
}

func (v *View[T]) changed(c ViewChange[T]) {
	v.changes.Add(1)
	if v.opts.OnChange != nil {
		v.opts.OnChange(c)
	}
}
