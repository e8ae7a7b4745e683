package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
	"clustermap/internal/mutate"
)

// A Log is a log on disk that a cluster can use. Package clustermap/chp/durable has one: the
// same files as those of a server without a cluster.
type Log interface {
	commit.Log
	// Install begins a checkpoint like Checkpoint, at any index that is not in the log. When it is
	// complete it replaces the whole log, which goes on behind that index.
	Install(index, sequence uint64) (commit.Checkpoint, error)
	// State calls fn with the entries of the current checkpoint.
	State(fn func(commit.Entry) error) error
}

// A disk is the log and the meta of a node. write and flush are called by one goroutine each,
// which may be two; the other methods by any.
type disk struct {
	log    Log
	always bool                // responses wait for a flush
	synced func(time.Duration) // gets how long a flush took, or nil

	mu    sync.Mutex // held while the meta is stored
	meta  meta
	store metaStore
	known atomic.Pointer[[]uint64] // meta.Heard, for who must not wait for the disk

	changes []uint64       // indexes of the changes of members in the log that are not known to be committed
	entries []commit.Entry // scratch
}

// vote stores the term and the vote.
func (d *disk) vote(term, vote uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.meta.Term == term && d.meta.Vote == vote {
		return nil
	}
	m := d.meta
	m.Term, m.Vote = term, vote
	if mutate.ClusterForgetVote {
		d.meta = m
		return nil
	}
	return d.save(&m)
}

// joined stores the members after a change.
func (d *disk) joined(to *members) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.meta.Members.Index >= to.Index {
		return nil
	}
	m := d.meta
	m.Members = to.clone()
	m.Heard = slices.DeleteFunc(slices.Clone(m.Heard), func(id uint64) bool { return !slices.Contains(to.all(), id) })
	return d.save(&m)
}

// heard stores that a member has sent something.
func (d *disk) heard(id uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.meta.Heard, id) {
		return nil
	}
	m := d.meta
	m.Heard = append(slices.Clone(m.Heard), id)
	return d.save(&m)
}

// hasHeard reports whether a node has sent something at any time.
func (d *disk) hasHeard(id uint64) bool {
	known := d.known.Load()
	return known != nil && slices.Contains(*known, id)
}

// save stores the meta. The caller holds d.mu.
func (d *disk) save(m *meta) error {
	if err := d.store.save(m); err != nil {
		return fmt.Errorf("%w: member file: %w", ErrFailed, err)
	}
	d.meta = *m
	heard := m.Heard
	d.known.Store(&heard)
	return nil
}

// write writes what a message of raft has for the disk, without flushing the log. install is
// the snapshot that it has, if any.
func (d *disk) write(m *raftpb.Message, install *receipt) error {
	if m.Term != 0 {
		if err := d.vote(m.Term, m.Vote); err != nil {
			return err
		}
	}
	if m.Snapshot != nil {
		if install == nil || install.at().Index != m.Snapshot.Metadata.Index {
			return errors.New("cluster: a snapshot without its parts")
		}
		if err := install.checkpoint.Commit(); err != nil {
			return err
		}
		if err := d.joined(&install.members); err != nil {
			return err
		}
	}
	if len(m.Entries) > 0 {
		if first := m.Entries[0].Index; first <= d.log.Last() {
			if err := d.log.CutBack(first - 1); err != nil {
				return err
			}
			for n := len(d.changes); n > 0 && d.changes[n-1] >= first; n-- {
				d.changes = d.changes[:n-1]
			}
		}
		d.entries = d.entries[:0]
		for i := range m.Entries {
			e, err := stored(&m.Entries[i])
			if err != nil {
				return err
			}
			d.entries = append(d.entries, e)
			if e.Kind == KindChange {
				d.changes = append(d.changes, e.Index)
			}
		}
		err := d.log.Append(d.entries...)
		clear(d.entries)
		if err != nil {
			return err
		}
	}
	if m.Commit > 0 {
		d.log.Commit(m.Commit)
		return d.changed(m.Commit)
	}
	return nil
}

// changed stores that a change of the members is committed, before this node says that it has
// what follows the change. Raft needs that: a node that forgot it would take part in elections
// of the members before it, while others may have gone on by another change.
func (d *disk) changed(committed uint64) error {
	last := uint64(0)
	for len(d.changes) > 0 && d.changes[0] <= committed {
		last, d.changes = d.changes[0], d.changes[1:]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if last <= d.meta.Commit || mutate.ClusterForgetCommit {
		return nil
	}
	m := d.meta
	m.Commit = last
	return d.save(&m)
}

// needsFlush reports whether a message's responses must wait for a flush.
func (d *disk) needsFlush(m *raftpb.Message) bool {
	return d.always && len(m.Responses) > 0 && !mutate.ClusterAckEarly
}

// flush flushes what was written.
func (d *disk) flush() error {
	if d.log.Synced() == d.log.Last() {
		return nil
	}
	began := time.Now()
	err := d.log.Sync()
	if d.synced != nil {
		d.synced(time.Since(began))
	}
	return err
}

func (d *disk) close() error { return errors.Join(d.log.Close(), d.store.close()) }

// checkpoint writes a copy of the state as a checkpoint.
func (d *disk) checkpoint(ctx context.Context, k *cut) error {
	to, err := d.log.Checkpoint(k.at.Index, k.image.Sequence())
	if err != nil {
		return err
	}
	defer to.Abort()
	if err := to.Append(k.head()); err != nil {
		return err
	}
	for e := range k.image.Entries() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := to.Append(e); err != nil {
			return err
		}
	}
	return to.Commit()
}
