package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// started is what a node begins with: the end of its log, and what its owner has.
type started struct {
	tail    *tail
	members members
	applied uint64
	last    Position // of the last entry that the owner has
}

// begin reads the meta and the log, and gives the owner what is known to be committed. What is
// not known to be stays for raft to decide.
func begin(o *Options, d *disk) (*started, error) {
	m, err := d.store.load()
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return nil, err
	}
	if !fresh && (m.Node != o.Node || m.Cluster != o.Cluster.String()) {
		return nil, &ForeignError{Dir: o.Dir, Node: m.Node, WantNode: o.Node, Cluster: m.Cluster, WantCluster: o.Cluster.String()}
	}
	r := reader{disk: d, owner: o.Owner, limit: o.TailBytes}
	done, err := d.log.Replay(r.look)
	if err != nil {
		return nil, err
	}
	r.checkpoint = done.Checkpoint
	if fresh {
		if m, err = first(o, &r, &done); err != nil {
			return nil, err
		}
	}
	// Also what is there already: a copy of it that was torn, or is damaged, is to be whole before this node
	// does anything.
	if err := d.save(&m); err != nil {
		return nil, err
	}
	switch {
	case done.Last > 0:
	case m.Members.Index == 1 && m.Term <= 1: // its first start
		err = d.log.Append(commit.Entry{Index: 1, Epoch: 1, Kind: KindEmpty})
		if err == nil {
			err = d.log.Sync()
		}
		if err != nil {
			return nil, err
		}
		done.Last, r.epoch = 1, 1
	case m.Members.Index > 0:
		return nil, &commit.CorruptError{File: o.Dir, Lost: m.Members.Index, Reason: errors.New("the log of a member of a cluster is missing")}
	}
	if r.head != nil && r.head.Index > m.Members.Index {
		m.Members = *r.head
		if err := d.joined(&m.Members); err != nil {
			return nil, err
		}
	}
	return r.start(m, &done)
}

// first returns the meta of a node that starts for the first time.
func first(o *Options, r *reader, done *commit.Replayed) (meta, error) {
	m := meta{Cluster: o.Cluster.String(), Node: o.Node}
	m.Members.Addresses = maps.Clone(o.Peers)
	switch {
	case r.clustered:
		return m, &commit.CorruptError{File: filepath.Join(o.Dir, metaName), Lost: done.Last, Reason: errors.New("the file is missing, and the log is that of a member of a cluster")}
	case done.Last > 0:
		// The log of a server without a cluster: its entries are committed.
		if len(o.Peers) != 1 || o.Join {
			return m, fmt.Errorf("cluster: directory %s has the data of a server without a cluster; it becomes a cluster of one, to which nodes are added", o.Dir)
		}
		m.Term, m.Members.Index = max(r.epoch, 1), done.Last
		m.Members.Conf.Voters = []uint64{o.Node}
	case !o.Join:
		// All nodes begin with the same entry, which no other node can get but with a snapshot,
		// since that has the members.
		m.Term, m.Members.Index = 1, 1
		m.Members.Conf.Voters = slices.Sorted(maps.Keys(o.Peers))
	}
	return m, nil
}

// A reader reads the log of a node that starts.
type reader struct {
	disk       *disk
	owner      Owner
	limit      int // of the tail
	checkpoint uint64
	head       *members // of the checkpoint
	term       uint64   // of the checkpoint
	epoch      uint64   // highest one
	changes    []uint64 // indexes of changes of the members
	clustered  bool     // there are entries that only a cluster makes
}

// look looks at an entry of the checkpoint or of the log.
func (r *reader) look(e commit.Entry) error {
	r.epoch = max(r.epoch, e.Epoch)
	r.clustered = r.clustered || e.Kind == KindEmpty || e.Kind == KindChange || e.Kind == KindMembers
	switch e.Kind {
	case KindMembers:
		m, err := decodeMembers(e.Records)
		r.head, r.term = &m, e.Epoch
		return err
	case KindChange:
		r.changes = append(r.changes, e.Index)
	}
	return nil
}

// start gives the owner what is committed, and returns the rest.
func (r *reader) start(m meta, done *commit.Replayed) (*started, error) {
	committed := max(done.Committed, r.checkpoint, m.Members.Index, m.Commit)
	if m.Members.alone(m.Node) {
		committed = done.Last // Replay has flushed all
	}
	committed = min(committed, done.Last)
	apply := committed
	for _, index := range r.changes {
		if index > m.Members.Index { // raft is to make the change
			apply = min(apply, index-1)
		}
		if index > committed {
			r.disk.changes = append(r.disk.changes, index)
		}
	}
	s := &started{members: m.Members.clone(), applied: apply}
	s.tail = &tail{prev: Position{r.checkpoint, r.term}}
	if r.checkpoint > 0 {
		s.last = s.tail.prev
		err := r.owner.Restore(&Snapshot{At: s.last, Sequence: done.Sequence, log: r.disk.log})
		if err != nil {
			return nil, err
		}
	}
	var batch []Committed
	from := max(r.checkpoint, r.disk.log.First())
	err := r.disk.log.Read(from, func(c commit.Entry) error {
		e := loaded(&c)
		at := Position{c.Index, c.Epoch}
		if c.Index <= r.checkpoint {
			s.tail.prev = at // a checkpoint of a server without a cluster does not have the term
			s.last = at
			return nil
		}
		if c.Index == 1 { // see first
			s.tail.prev = at
		} else {
			s.tail.append([]raftpb.Entry{e})
		}
		if c.Index > apply {
			return nil
		}
		s.last = at
		s.tail.trim(r.limit, c.Index)
		if c.Kind == KindEmpty || c.Kind == KindChange {
			return nil
		}
		own, err := stored(&e)
		if err != nil {
			return err
		}
		batch = append(batch, Committed{Entry: own})
		if len(batch) == cap(batch) || len(batch) >= 64 {
			r.owner.Committed(batch)
			batch = batch[:0]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(batch) > 0 {
		r.owner.Committed(batch)
	}
	term := max(m.Term, r.epoch)
	s.tail.hard = raftpb.HardState{Term: term, Commit: committed}
	if term == m.Term {
		s.tail.hard.Vote = m.Vote
	}
	s.tail.conf = m.Members.Conf
	return s, nil
}
