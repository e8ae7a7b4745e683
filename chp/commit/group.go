package commit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"clustermap/internal/mutate"
	"clustermap/internal/wake"
)

// GroupOptions are the settings of a Group.
type GroupOptions struct {
	Policy Policy
	// Bytes bounds the records in memory: those appended and not yet written, and with the
	// policy Always those not yet flushed. Append waits at the bound, so one entry can
	// exceed it. The buffers take up to three times as much. The default is 16 MiB.
	Bytes int
	// OnDurable is called after each flush, in the goroutine that flushes, with the index
	// up to which everything is on disk. It must not call Append, Wait, Flush or Close.
	OnDurable func(index uint64)
	// HoldCommits leaves Log.Commit to the caller, for a server whose updates are
	// committed only when another server has them too. Otherwise the Group commits the
	// entries that are on disk.
	HoldCommits bool
}

// A Group writes to a [Log] in one goroutine and flushes it in another. Entries
// appended during a write are in the next write, and entries written during a flush are
// in the next flush, so one flush serves many batches.
//
// Only one goroutine may call Append, in the order of the log; all other methods are
// safe for concurrent use. The first error of the log ends the Group: all later calls
// return it.
type Group struct {
	log     Log
	space   Reserver // nil if the log cannot reserve space
	gathers bool     // the log is a Gatherer
	options GroupOptions
	stage   chan struct{} // capacity 1; wakes the writer
	flush   chan struct{} // capacity 1; wakes the flusher
	failed  chan struct{} // closed when the log has failed
	running sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed when a field below changes; nil while no goroutine waits
	staged  batch
	writing int    // bytes being written
	waiting int    // bytes written and not yet flushed
	last    uint64 // index of the last appended entry
	written uint64 // index of the last written entry
	durable uint64 // index of the last entry on disk
	asked   uint64 // flush at least up to this index now
	closed  bool   // no more entries are appended
	drained bool   // the writer has ended
	credit  int    // bytes for which the log has space, see Reserver
	full    error  // the log has no more space: no more entries are appended
	err     error

	flushes uint64
}

// batch is a number of entries and the memory of their records: the arena, and what was
// lent.
type batch struct {
	entries []Entry
	arena   []byte
	lent    [][]byte
	owners  []Owner // of lent
	bytes   int     // of the records
}

func (b *batch) size() int { return b.bytes + entryBytes*len(b.entries) }

// copied adds bytes to the arena. If that is reallocated, earlier entries keep the old
// memory.
func (b *batch) copied(first []byte, more [][]byte) []byte {
	start := len(b.arena)
	b.arena = append(b.arena, first...)
	for _, p := range more {
		b.arena = append(b.arena, p...)
	}
	return b.arena[start:len(b.arena):len(b.arena)]
}

// gather copies what was lent to the arena.
func (b *batch) gather() {
	for i := range b.entries {
		if e := &b.entries[i]; len(e.Parts) > 0 {
			e.Records, e.Parts = b.copied(e.Records, e.Parts), nil
		}
	}
}

// reset empties b, releases what was lent, and frees an unusually large arena.
func (b *batch) reset(limit int) {
	if cap(b.arena) > 2*limit {
		b.arena = nil
	}
	for _, o := range b.owners {
		o.Release()
	}
	clear(b.entries)
	clear(b.lent)
	clear(b.owners)
	*b = batch{entries: b.entries[:0], arena: b.arena[:0], lent: b.lent[:0], owners: b.owners[:0]}
}

// NewGroup starts a Group on a log that was replayed. Close ends it; the log stays
// open.
func NewGroup(log Log, options GroupOptions) *Group {
	if options.Bytes <= 0 {
		options.Bytes = DefaultGroupBytes
	}
	last := log.Last()
	g := &Group{
		log: log, options: options,
		stage: make(chan struct{}, 1), flush: make(chan struct{}, 1), failed: make(chan struct{}),
		last: last, written: last, durable: log.Synced(),
	}
	_, g.gathers = log.(Gatherer)
	if space, ok := log.(Reserver); ok {
		g.space = space
		n, err := space.Reserve()
		g.reserved(n, err)
	}
	g.running.Go(g.writeAll)
	g.running.Go(g.flushAll)
	return g
}

// Append copies an entry, assigns it the next index, and returns the index. It waits
// while GroupOptions.Bytes are in memory. Once the buffers have grown it does not
// allocate.
func (g *Group) Append(ctx context.Context, e Entry) (uint64, error) {
	if err := g.Room(ctx); err != nil {
		return 0, err
	}
	return g.AppendParts(e)
}

// AppendParts is Append for an entry whose records are in several slices: e.Records and
// then the parts, in order. It copies each once. It never waits: call Room before.
func (g *Group) AppendParts(e Entry, parts ...[]byte) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.ended(); err != nil {
		return 0, err
	}
	e.Records = g.staged.copied(e.Records, parts)
	return g.add(e), nil
}

// A Lent is a part of an entry that stays where it is until the entry is written.
type Lent struct {
	Bytes []byte
	Owner Owner // of the bytes, which must not change until it is released
}

// An Owner owns bytes that were lent to a Group.
type Owner interface {
	// Release is called once for each Lent that has it: when the entry is written, or when
	// the Group has ended. It must not wait, nor call the Group.
	Release()
}

// Lend is AppendParts without a copy of the parts. It copies e.Records, and the slice
// parts. If it returns an error, nothing was lent.
func (g *Group) Lend(e Entry, parts ...Lent) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.ended(); err != nil {
		return 0, err
	}
	b := &g.staged
	e.Records = b.copied(e.Records, nil)
	start := len(b.lent)
	for _, p := range parts {
		b.lent, b.owners = append(b.lent, p.Bytes), append(b.owners, p.Owner)
	}
	e.Parts = b.lent[start:len(b.lent):len(b.lent)]
	return g.add(e), nil
}

// ended returns the error of a Group that takes no more entries. The caller holds g.mu.
func (g *Group) ended() error {
	switch {
	case g.err != nil:
		return g.err
	case g.full != nil:
		return g.full
	case g.closed:
		return ErrClosed
	}
	return nil
}

// add appends an entry whose records are staged, and returns its index. The caller holds
// g.mu.
func (g *Group) add(e Entry) uint64 {
	g.last++
	e.Index = g.last
	g.staged.entries = append(g.staged.entries, e)
	n := e.RecordBytes()
	g.staged.bytes += n
	g.credit -= n + EntrySpace
	if len(g.staged.entries) == 1 {
		wake.Signal(g.stage)
	}
	return e.Index
}

// Room waits until less than GroupOptions.Bytes are in memory, so that the next Append
// does not wait, however large its entry is. The goroutine that appends can thus wait
// for a slow disk before it takes a lock. Room also returns the error that ended the
// Group, and that of a full disk, while what was appended before is still written.
func (g *Group) Room(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.wait(ctx, func() bool { return g.full != nil || g.room() }); err != nil {
		return err
	}
	return g.full
}

// room reports whether an entry may be appended. The caller holds g.mu.
func (g *Group) room() bool {
	size := g.staged.size() + g.writing
	if g.options.Policy.IsAlways() {
		size += g.waiting
	}
	return size < g.options.Bytes && (g.space == nil || g.credit > 0)
}

// reserved notes what Reserve has returned after everything but the staged entries was
// written. When there is no more space, the group writes and flushes what it has, and ends.
// The caller holds g.mu, or is the only one.
func (g *Group) reserved(n int, err error) {
	g.credit = n - g.staged.bytes - EntrySpace*len(g.staged.entries)
	if err != nil && g.full == nil {
		g.full, g.closed = err, true
		wake.Signal(g.stage)
	}
}

// Wait returns when everything up to the index is on disk. With the policy Interval
// that takes up to the interval; with Never, until Flush is called.
func (g *Group) Wait(ctx context.Context, index uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until(ctx, index)
}

// Flush returns when everything appended before the call is on disk, with every policy.
func (g *Group) Flush(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	index := g.last
	if index > g.durable && index > g.asked {
		g.asked = index
		wake.Signal(g.flush)
	}
	return g.until(ctx, index)
}

// Durable returns the index up to which everything is on disk.
func (g *Group) Durable() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.durable
}

// Written returns the index up to which everything is in the log and survives the end
// of the process.
func (g *Group) Written() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.written
}

// Flushes returns the number of flushes.
func (g *Group) Flushes() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushes
}

// Err returns the error that ended the Group, or nil.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(g.err, ErrClosed) {
		return nil
	}
	return g.err
}

// Failed returns a channel that is closed when the log has failed: see Err.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// Close writes and flushes all appended entries and ends the goroutines. It returns the
// error of a log that has failed. The log stays open.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	wake.Signal(g.stage)
	g.mu.Unlock()
	g.running.Wait()
	return g.Err()
}

// until waits until an index is on disk. The caller holds g.mu.
func (g *Group) until(ctx context.Context, index uint64) error {
	if index > g.last {
		return fmt.Errorf("%w: %d was not appended, the last entry is %d", ErrOrder, index, g.last)
	}
	if index <= g.durable {
		return nil
	}
	err := g.wait(ctx, func() bool { return index <= g.durable })
	if index <= g.durable {
		return nil
	}
	return err
}

// wait waits until ready returns true or there is an error. The caller holds g.mu,
// which is unlocked while wait sleeps.
func (g *Group) wait(ctx context.Context, ready func() bool) error {
	for {
		switch {
		case g.err != nil:
			return g.err
		case g.closed && g.full == nil:
			return ErrClosed
		case ready():
			return nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
			g.mu.Lock()
		case <-ctx.Done():
			g.mu.Lock()
			return ctx.Err()
		}
	}
}

// wakeWaiters wakes all goroutines that wait. The caller holds g.mu.
func (g *Group) wakeWaiters() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// end ends the Group with an error, unless it has ended already. The caller holds g.mu.
func (g *Group) end(err error) {
	if g.err == nil {
		g.err = err
		g.staged.reset(0)
		if err != ErrClosed {
			close(g.failed)
		}
	}
	wake.Signal(g.stage)
	wake.Signal(g.flush)
	g.wakeWaiters()
}

// writeAll writes appended entries to the log until the group ends.
func (g *Group) writeAll() {
	var spare batch
	for range g.stage {
		g.mu.Lock()
		if g.err != nil {
			g.mu.Unlock()
			return
		}
		work, size := g.staged, g.staged.size()
		g.staged, g.writing = spare, size
		closed := g.closed
		g.mu.Unlock()

		var err error
		var last uint64
		if n := len(work.entries); n > 0 {
			last = work.entries[n-1].Index
			mutate.SlowDisk()
			if !g.gathers {
				work.gather()
			}
			err = g.log.Append(work.entries...)
		}
		work.reset(g.options.Bytes)
		spare = work
		var space int
		var full error
		if err == nil && g.space != nil {
			space, full = g.space.Reserve()
		}

		g.mu.Lock()
		if err != nil {
			g.end(err)
			g.mu.Unlock()
			return
		}
		if g.space != nil {
			g.reserved(space, full)
		}
		g.written, g.writing = max(g.written, last), 0
		g.waiting += size
		if len(g.staged.entries) > 0 {
			wake.Signal(g.stage)
		}
		g.drained = closed // nothing was appended since
		g.wakeWaiters()
		wake.Signal(g.flush)
		g.mu.Unlock()
		if closed {
			return
		}
	}
}

// flushAll flushes the log until the group ends.
func (g *Group) flushAll() {
	every := g.options.Policy.Every()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var due bool // the interval is over
	var armed bool
	for {
		select {
		case <-g.flush:
		case <-timer.C:
			due, armed = true, false
		}
		g.mu.Lock()
		if g.err != nil {
			g.mu.Unlock()
			return
		}
		written, waiting, drained := g.written, g.waiting, g.drained
		dirty := written > g.durable
		asked := g.asked > g.durable && g.asked <= written
		g.mu.Unlock()

		flush := dirty && (due || asked || drained || waiting >= flushBytes || g.options.Policy.IsAlways())
		if flush {
			if err := g.log.Sync(); err != nil {
				g.mu.Lock()
				g.end(err)
				g.mu.Unlock()
				return
			}
			if !g.options.HoldCommits {
				g.log.Commit(written)
			}
			g.mu.Lock()
			g.durable = written
			g.waiting -= waiting
			g.flushes++
			g.wakeWaiters()
			g.mu.Unlock()
			if g.options.OnDurable != nil {
				g.options.OnDurable(written)
			}
		}
		if drained {
			g.mu.Lock()
			if g.full != nil {
				g.end(g.full)
			} else {
				g.end(ErrClosed)
			}
			g.mu.Unlock()
			return
		}
		if flush || !dirty {
			due = false
		} else if every > 0 && !armed && !due {
			timer.Reset(every)
			armed = true
		}
	}
}
