package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"

	"clustermap/chp/commit"
)

// simDisk is a disk of a simulated machine. What was not flushed is lost when the machine
// loses power, all of it or a part of its end.
type simDisk struct {
	meta    *meta // nil if there is none
	now     simLog
	flushed simLog
	stalled bool
	broken  string // what it cannot do: brokenWrites, brokenFlushes
	works   int    // when it can again

	// A disk that lies says that it has flushed what it has not. These are what it has really.
	lies     bool
	really   simLog
	realMeta *meta
	random   *rand.Rand
}

const (
	brokenWrites  = "writes: it is full"
	brokenFlushes = "flushes"
)

// errSimDisk is what goes wrong with a disk that is broken.
var errSimDisk = errors.New("simulated disk")

func (d *simDisk) err(what string) error {
	if d.broken == what {
		return fmt.Errorf("%w: %s", errSimDisk, what)
	}
	return nil
}

// flush makes what was written survive a loss of power, or claims that.
func (d *simDisk) flush() {
	d.flushed = d.now.clone()
	if !d.lies || d.random.IntN(8) == 0 {
		d.settle()
	}
}

// settle makes all that was said to be flushed true.
func (d *simDisk) settle() { d.really, d.realMeta = d.flushed.clone(), d.meta }

// simLog is the content of a log.
type simLog struct {
	checkpoint []commit.Entry
	index      uint64 // of the checkpoint
	sequence   uint64
	begin      uint64 // index before the first entry
	entries    []commit.Entry
	committed  uint64
}

func (l *simLog) clone() simLog {
	c := *l
	c.entries = slices.Clone(l.entries)
	return c
}

func (l *simLog) last() uint64 { return l.begin + uint64(len(l.entries)) }

// has reports whether an entry is in the log, or in its checkpoint.
func (l *simLog) has(index, term uint64) bool {
	i := int(index) - int(l.begin) - 1
	return i < 0 && l.index >= index || i >= 0 && i < len(l.entries) && l.entries[i].Epoch == term
}

// crash loses what was not flushed, but for the first keep entries of it.
func (d *simDisk) crash(keep int) {
	unflushed := d.now
	d.now = d.flushed.clone()
	if unflushed.index != d.now.index || unflushed.begin > d.now.last() || unflushed.begin < d.now.begin {
		return
	}
	// Entries that were not flushed follow those that were, if nothing was cut back.
	for i := 0; i < keep; i++ {
		next := d.now.last() + 1
		if at := int(next - unflushed.begin - 1); at >= 0 && at < len(unflushed.entries) {
			d.now.entries = append(d.now.entries, unflushed.entries[at])
		}
	}
	d.flushed = d.now.clone()
	d.settle()
}

// simOpen is a log and a meta that are open. After a crash they are not used any more.
type simOpen struct {
	disk *simDisk
}

var (
	_ Log       = (*simOpen)(nil)
	_ metaStore = (*simMeta)(nil)
)

type simMeta struct{ disk *simDisk }

func (m *simMeta) load() (meta, error) {
	if m.disk.meta == nil {
		return meta{}, fs.ErrNotExist
	}
	c := *m.disk.meta
	c.Members = c.Members.clone()
	return c, nil
}

func (m *simMeta) save(to *meta) error {
	if err := errors.Join(m.disk.err(brokenWrites), m.disk.err(brokenFlushes)); err != nil {
		return err
	}
	c := *to
	c.Members = c.Members.clone()
	m.disk.meta = &c
	if !m.disk.lies {
		m.disk.realMeta = &c
	}
	return nil
}

func (m *simMeta) close() error { return nil }

func own(e commit.Entry) commit.Entry {
	e.Records = slices.Clone(e.Records)
	return e
}

func (o *simOpen) Replay(fn func(commit.Entry) error) (commit.Replayed, error) {
	l := &o.disk.now
	for _, e := range slices.Concat(l.checkpoint, l.entries) {
		if err := fn(e); err != nil {
			return commit.Replayed{}, err
		}
	}
	return commit.Replayed{Checkpoint: l.index, Sequence: l.sequence, Last: l.last(), Committed: min(max(l.committed, l.index), l.last())}, nil
}

func (o *simOpen) Append(all ...commit.Entry) error {
	l := &o.disk.now
	err := o.disk.err(brokenWrites)
	if err != nil {
		all = all[:len(all)/2] // it was full in the middle
	}
	for _, e := range all {
		if e.Index != l.last()+1 {
			return fmt.Errorf("%w: entry %d after %d", commit.ErrOrder, e.Index, l.last())
		}
		l.entries = append(l.entries, own(e))
	}
	return err
}

func (o *simOpen) Sync() error {
	if err := o.disk.err(brokenFlushes); err != nil {
		return err
	}
	o.disk.flush()
	return nil
}

func (o *simOpen) Commit(index uint64) {
	l := &o.disk.now
	l.committed = max(l.committed, min(index, o.Synced()))
}

func (o *simOpen) First() uint64  { return o.disk.now.begin + 1 }
func (o *simOpen) Last() uint64   { return o.disk.now.last() }
func (o *simOpen) Synced() uint64 { return min(o.disk.flushed.last(), o.disk.now.last()) }

func (o *simOpen) Read(from uint64, fn func(commit.Entry) error) error {
	l := &o.disk.now
	if from <= l.begin {
		return commit.ErrGone
	}
	for _, e := range l.entries[from-l.begin-1:] {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

func (o *simOpen) CutBack(last uint64) error {
	l := &o.disk.now
	if last < l.index || last > l.last() {
		return fmt.Errorf("%w: cut back to %d of %d to %d", commit.ErrOrder, last, l.index, l.last())
	}
	l.entries = slices.Clone(l.entries[:last-l.begin])
	return o.Sync()
}

func (o *simOpen) Epoch() uint64         { return 0 }
func (o *simOpen) SetEpoch(uint64) error { return nil }
func (o *simOpen) Close() error          { return nil }

func (o *simOpen) State(fn func(commit.Entry) error) error {
	for _, e := range o.disk.now.checkpoint {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

func (o *simOpen) Checkpoint(index, sequence uint64) (commit.Checkpoint, error) {
	if l := &o.disk.now; index < l.index || index > l.last() {
		return nil, commit.ErrOrder
	}
	return &simCheckpoint{disk: o.disk, index: index, sequence: sequence}, nil
}

func (o *simOpen) Install(index, sequence uint64) (commit.Checkpoint, error) {
	if index <= o.disk.now.index {
		return nil, commit.ErrOrder
	}
	return &simCheckpoint{disk: o.disk, index: index, sequence: sequence, install: true}, nil
}

type simCheckpoint struct {
	disk            *simDisk
	index, sequence uint64
	install         bool
	entries         []commit.Entry
}

func (c *simCheckpoint) Append(e commit.Entry) error {
	if err := c.disk.err(brokenWrites); err != nil {
		return err
	}
	e.Index = c.index
	c.entries = append(c.entries, own(e))
	return nil
}

func (c *simCheckpoint) Commit() error {
	if err := errors.Join(c.disk.err(brokenWrites), c.disk.err(brokenFlushes)); err != nil {
		return err
	}
	l := &c.disk.now
	if c.install {
		*l = simLog{begin: c.index, committed: c.index}
	} else if n := int(c.index - l.begin); n > 1 { // its own entry stays
		l.entries = slices.Clone(l.entries[n-1:])
		l.begin = c.index - 1
	}
	l.checkpoint, l.index, l.sequence = c.entries, c.index, c.sequence
	c.disk.flushed = l.clone()
	c.disk.settle()
	return nil
}

func (c *simCheckpoint) Abort() {}
