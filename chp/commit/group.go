package commit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"clustermap/internal/mutate"
)

// DefaultGroupBytes is the default of GroupOptions.Bytes.
const DefaultGroupBytes = 16 << 20

// GroupOptions are the settings of a Group.
type GroupOptions struct {
	Policy Policy
	// Bytes bounds what is held in memory: records that were appended and not
	// yet written, and with the policy Always not yet flushed. Append waits
	// while that much is held, so one entry can go beyond it. The buffers take
	// up to three times as much. Default 16 MiB.
	Bytes int
	// OnDurable is called after each flush, in the goroutine that flushes, with
	// the index up to which everything is on the disk. It must not call Append,
	// Wait, Flush or Close.
	OnDurable func(index uint64)
	// HoldCommits leaves Log.Commit to the caller: for a server whose updates
	// count as kept only when somebody else has them too. Else the
	// Group commits what is on the disk.
	HoldCommits bool
}

// A Group writes to a [Log] in one goroutine and flushes it in another. What is
// appended during a write goes into the next write; what is written during a
// flush is on the disk after the next flush, and one flush serves it all.
//
// Append is for one goroutine, which calls it in the order of the log; all other methods
// are safe for concurrent use. The first error of the log ends the
// Group: all calls return it from then on.
type Group struct {
	log     Log
	options GroupOptions
	stage   chan struct{} // holds one value: the writer has to look at the staged entries
	flush   chan struct{} // holds one value: the flusher has to look at the numbers below
	failed  chan struct{} // closed when the log has failed
	running sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a number below changes; nil while nobody waits
	staged  batch
	writing int    // bytes that are being written
	waiting int    // with the policy Always, bytes that are written and not yet flushed
	last    uint64 // last index that was appended
	written uint64 // last index that the log has
	durable uint64 // last index on the disk
	asked   uint64 // flush at least up to this index now
	closed  bool   // nothing is appended any more
	drained bool   // the writer has ended
	err     error

	flushes uint64
}

// batch is entries and the memory of their records.
type batch struct {
	entries []Entry
	arena   []byte
}

// entryBytes is what an entry counts beside its records, so that a bound in
// bytes bounds empty entries too.
const entryBytes = 64

func (b *batch) size() int { return len(b.arena) + entryBytes*len(b.entries) }

// reset empties b, and gives up memory that an unusual load has left.
func (b *batch) reset(limit int) {
	if cap(b.arena) > 2*limit {
		b.arena = nil
	}
	clear(b.entries)
	b.entries, b.arena = b.entries[:0], b.arena[:0]
}

// NewGroup starts a Group on a log that was replayed. Close ends it, and leaves the log
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
	g.running.Go(g.writeAll)
	g.running.Go(g.flushAll)
	return g
}

// Append copies an entry, gives it the next index, which it returns, and
// leaves it to the Group's goroutines. While GroupOptions.Bytes are held, it
// waits. It allocates nothing once its buffers have grown.
func (g *Group) Append(ctx context.Context, e Entry) (uint64, error) {
	if err := g.Room(ctx); err != nil {
		return 0, err
	}
	return g.AppendParts(e)
}

// AppendParts is Append for an entry whose records lie in several slices:
// e.Records and then the parts, in order. It copies each of them once. It never
// waits: who calls it waits with Room before.
func (g *Group) AppendParts(e Entry, parts ...[]byte) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.err != nil:
		return 0, g.err
	case g.closed:
		return 0, ErrClosed
	}
	start := len(g.staged.arena)
	// If the arena moves, earlier entries keep the old memory with their records.
	g.staged.arena = append(g.staged.arena, e.Records...)
	for _, part := range parts {
		g.staged.arena = append(g.staged.arena, part...)
	}
	g.last++
	e.Index, e.Records = g.last, g.staged.arena[start:len(g.staged.arena):len(g.staged.arena)]
	g.staged.entries = append(g.staged.entries, e)
	if len(g.staged.entries) == 1 {
		wake(g.stage)
	}
	return e.Index, nil
}

// Room returns when less than GroupOptions.Bytes are held: when the next Append will
// not wait, however large its entry is. It lets the goroutine that appends wait for
// a slow disk before it takes a lock. It returns the error that ended the Group, too.
func (g *Group) Room(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wait(ctx, g.room)
}

// room tells whether an entry may be appended. The caller holds g.mu.
func (g *Group) room() bool { return g.staged.size()+g.writing+g.waiting < g.options.Bytes }

// Wait returns when everything up to the index is on the disk. With the policy Interval that
// takes up to the interval; with Never, until somebody flushes.
func (g *Group) Wait(ctx context.Context, index uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until(ctx, index)
}

// Flush returns when everything that was appended before the call is on the
// disk, whatever the policy is.
func (g *Group) Flush(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	index := g.last
	if index > g.durable && index > g.asked {
		g.asked = index
		wake(g.flush)
	}
	return g.until(ctx, index)
}

// Durable returns the index up to which everything is on the disk.
func (g *Group) Durable() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.durable
}

// Written returns the index up to which everything is in the log, and survives
// the end of the process.
func (g *Group) Written() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.written
}

// Flushes returns how often the log was flushed.
func (g *Group) Flushes() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushes
}

// Err returns the error that ended the Group, and nil while it works.
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

// Close writes and flushes what was appended, and ends the goroutines. It returns
// the error of a log that has failed. The log stays open.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	wake(g.stage)
	g.mu.Unlock()
	g.running.Wait()
	return g.Err()
}

// until waits for an index to be on the disk. The caller holds g.mu.
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

// wait returns when ready does, or with an error. The caller holds g.mu, which
// is free while it sleeps.
func (g *Group) wait(ctx context.Context, ready func() bool) error {
	for {
		switch {
		case g.err != nil:
			return g.err
		case g.closed:
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

// wake makes one of the goroutines look.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tell wakes all that wait. The caller holds g.mu.
func (g *Group) tell() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// end makes an error the Group's last word, unless there is one before it. The
// caller holds g.mu.
func (g *Group) end(err error) {
	if g.err == nil {
		g.err = err
		if err != ErrClosed {
			close(g.failed)
		}
	}
	wake(g.stage)
	wake(g.flush)
	g.tell()
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
			err = g.log.Append(work.entries...)
		}
		work.reset(g.options.Bytes)
		spare = work

		g.mu.Lock()
		if err != nil {
			g.end(err)
			g.mu.Unlock()
			return
		}
		g.written, g.writing = max(g.written, last), 0
		if g.options.Policy.IsAlways() {
			g.waiting += size
		}
		if len(g.staged.entries) > 0 {
			wake(g.stage)
		}
		g.drained = closed // nothing was appended since
		g.tell()
		wake(g.flush)
		g.mu.Unlock()
		if closed {
			return
		}
	}
}

// flushAll is the flusher.
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

		flush := dirty && (due || asked || drained || g.options.Policy.IsAlways())
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
			g.tell()
			g.mu.Unlock()
			if g.options.OnDurable != nil {
				g.options.OnDurable(written)
			}
		}
		if drained {
			g.mu.Lock()
			g.end(ErrClosed)
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
