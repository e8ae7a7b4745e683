//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"clustermap/chp"
)

// writer is one goroutine that writes through a replica, and reads.
type writer struct {
	replica *replica
	proc    int
	first   bool // the only one of its replica that uses Set and Flush, which counts for the whole client
	keys    []string
	rng     *rand.Rand
	pause   time.Duration
	done    atomic.Int64 // operations that were acknowledged
}

// run writes until the context ends, and returns when the last operation has.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.step()
		pause := time.NewTimer(time.Duration(w.rng.ExpFloat64() * float64(w.pause)))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (w *writer) step() {
	// Mostly patience, at times so little that a call ends halfway.
	patience := 3 * time.Second
	if w.rng.IntN(10) == 0 {
		patience = time.Duration(1+w.rng.IntN(80)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l := w.replica.now()
	n := w.rng.IntN(100)
	if !w.first && n >= 95 {
		n = 0
	}
	switch {
	case n < 18:
		ttl := time.Duration(20+w.rng.IntN(1200)) * time.Millisecond
		w.set(ctx, l, w.key(), ttl)
	case n < 34:
		w.del(ctx, l, w.key())
	case n < 48:
		w.read(ctx, l)
	case n < 95:
		w.set(ctx, l, w.key(), 0)
	default:
		w.burst(ctx, l, 1+w.rng.IntN(len(w.keys)), 0)
	}
}

// key chooses one; a few are used much more than others.
func (w *writer) key() string {
	n := len(w.keys)
	return w.keys[min(w.rng.IntN(n), w.rng.IntN(n))]
}

func (w *writer) value(id uint64) []byte {
	size := 20 + w.rng.IntN(200)
	if w.rng.IntN(12) == 0 {
		size = 8<<10 + w.rng.IntN(40<<10)
	}
	return appendValue(nil, id, size)
}

func (w *writer) set(ctx context.Context, l *life, key string, ttl time.Duration) (ok bool) {
	o := w.replica.history.call(&op{Proc: w.proc, Client: l.name, Kind: opSet, Key: key, TTL: ttl})
	var opts []chp.SetOption
	if ttl > 0 {
		opts = append(opts, chp.WithTTL(ttl))
	}
	return w.sync(l, o, func() (int64, error) { return l.client.SetSync(ctx, key, w.value(o.ID), opts...) })
}

func (w *writer) del(ctx context.Context, l *life, key string) {
	o := w.replica.history.call(&op{Proc: w.proc, Client: l.name, Kind: opDelete, Key: key})
	w.sync(l, o, func() (int64, error) { return l.client.DeleteSync(ctx, key) })
}

// sync makes an update, waits for it, and at once reads the key. It compares the client's
// own count of sessions before and after, since the state with which one begins, and which ends
// the wait, may be reported late.
func (w *writer) sync(l *life, o *op, update func() (int64, error)) (ok bool) {
	before := sessions(l.client)
	seq, err := update()
	w.finish(o, seq, err)
	if err == nil {
		w.look(l, o)
	}
	o.Synced = sessions(l.client) != before
	return err == nil
}

// sessions returns how often a client has begun to follow a server.
func sessions(c *chp.Client) uint64 {
	stats := c.Stats()
	return stats.Syncs + stats.Resumed
}

// look reads the written key at once.
func (w *writer) look(l *life, o *op) {
	o.Saw, o.Looked = w.get(l, o.Key), true
}

func (w *writer) get(l *life, key string) uint64 {
	value, ok := l.client.Get(key)
	if !ok {
		return 0
	}
	id, err := readValue(value)
	if err != nil {
		w.replica.history.violate("mangled", "%s: Get(%q): %v", l.name, key, err)
	}
	return id
}

// read reads the server's value of a key. An update that was sent after the call began
// and came back brought all updates before it; so the result of Get then was the key's
// value at the server at some moment of the call.
func (w *writer) read(ctx context.Context, l *life) {
	h := w.replica.history
	o := h.call(&op{Proc: w.proc, Client: l.name, Kind: opRead, Key: w.key()})
	if !w.set(ctx, l, fmt.Sprintf("%sread-%d", subtreeOf(w.keys[0]), w.proc), 0) {
		o.Return, o.Outcome = h.now(), failed
		return
	}
	o.Saw = w.get(l, o.Key)
	o.Return, o.Outcome = h.now(), acked
}

// burst sends updates of n different keys and waits for all of them. Each has size
// bytes if that is not 0.
func (w *writer) burst(ctx context.Context, l *life, n, size int) {
	h := w.replica.history
	var ops []*op
	for _, i := range w.rng.Perm(len(w.keys))[:n] {
		o := h.call(&op{Proc: w.proc, Client: l.name, Kind: opSet, Key: w.keys[i]})
		value := w.value(o.ID)
		if size > 0 {
			value = appendValue(nil, o.ID, size)
		}
		err := l.client.Set(ctx, o.Key, value)
		if err != nil {
			// By the documentation an update is not sent if Set returned an error.
			o.Return, o.Outcome, o.Err = h.now(), failed, err.Error()
			break
		}
		ops = append(ops, o)
	}
	err := l.client.Flush(ctx)
	for _, o := range ops {
		w.finish(o, 0, err)
	}
}

// finish notes how an update ended.
func (w *writer) finish(o *op, seq int64, err error) {
	o.Return, o.Seq = w.replica.history.now(), seq
	switch {
	case err == nil:
		o.Outcome = acked
		w.done.Add(1)
		return
	case errors.Is(err, chp.ErrRefused), errors.Is(err, chp.ErrOutsideSubtrees), errors.Is(err, chp.ErrEmptyValue):
		o.Outcome = failed
	}
	o.Err = err.Error()
}
