package cluster

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
)

// simFiles are the files of a node of a simulation, beside the disk that it simulates, which tells what must be
// in them.
type simFiles struct {
	dir  string
	log  *durable.Log
	meta *metaFile

	adopt bool // the simulated disk is to have what is in them

	damage  string // what was done to them while the node was down
	refused error  // why the node does not start with them
}

// open opens the files.
func (f *simFiles) open(n *simNode) (d *disk, err error) {
	if f.log, err = durable.Open(f.dir, durable.Options{}); err != nil {
		return nil, err
	}
	f.meta = &metaFile{path: filepath.Join(f.dir, metaName)}
	return &disk{log: &fileLog{simOpen{&n.disk}, f.log, n}, store: &fileMeta{simMeta{&n.disk}, f.meta, n}, always: true}, nil
}

// kill leaves what a process leaves that is killed: the files as they are.
func (f *simFiles) kill(n *simNode) {
	to := filepath.Join(filepath.Dir(f.dir), fmt.Sprintf("%d-%d", n.id, n.starts))
	if err := errors.Join(copyDir(to, f.dir), f.close(), os.RemoveAll(f.dir)); err != nil {
		n.sim.fail("files", "%v: %v", n, err)
	}
	f.dir = to
}

func (f *simFiles) close() error {
	if f.log == nil {
		return nil
	}
	return errors.Join(f.log.Close(), f.meta.close())
}

// copyDir copies a directory, without what was never written in it.
func copyDir(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	const block = 4096
	return filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		name = filepath.Join(to, name)
		if e.IsDir() {
			return os.MkdirAll(name, 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		err = w.Truncate(int64(len(b)))
		for at := 0; at < len(b) && err == nil; at += block {
			if p := b[at:min(at+block, len(b))]; !empty(p) {
				_, err = w.WriteAt(p, int64(at))
			}
		}
		return errors.Join(err, w.Close())
	})
}

func empty(b []byte) bool { return bytes.Equal(b, zero[:len(b)]) }

var zero [4096]byte

// fileLog is a log in files, and beside it the simulated one.
type fileLog struct {
	simOpen
	real *durable.Log
	node *simNode
}

func (l *fileLog) Replay(fn func(commit.Entry) error) (commit.Replayed, error) {
	var all []commit.Entry
	r, err := l.real.Replay(func(e commit.Entry) error {
		all = append(all, own(e))
		return fn(e)
	})
	if err != nil {
		return r, err
	}
	model := &l.disk.now
	if f := l.node.files; f.adopt {
		f.adopt = false
		*model = simLog{index: r.Checkpoint, begin: r.Checkpoint, sequence: r.Sequence, committed: r.Committed}
		for _, e := range all {
			if e.Index <= r.Checkpoint {
				model.checkpoint = append(model.checkpoint, e)
			} else {
				model.entries = append(model.entries, e)
			}
		}
	}
	pieces := len(model.checkpoint)
	want := slices.Concat(model.checkpoint, slices.DeleteFunc(slices.Clone(model.entries), func(e commit.Entry) bool { return e.Index <= model.index }))
	if len(all) > pieces { // the entry of the checkpoint may be in the files
		all = slices.Concat(all[:pieces], slices.DeleteFunc(all[pieces:], func(e commit.Entry) bool { return e.Index <= model.index }))
	}
	if r.Last != model.last() || r.Checkpoint != model.index || !slices.EqualFunc(all, want, sameEntry) {
		l.node.sim.fail("files", "%v has %d entries, a checkpoint at %d, and the last entry %d in its files; written were %d, %d and %d", l.node, len(all), r.Checkpoint, r.Last, len(want), model.index, model.last())
	}
	return r, nil
}

func sameEntry(a, b commit.Entry) bool {
	return a.Index == b.Index && a.Epoch == b.Epoch && a.Kind == b.Kind && a.First == b.First && a.Count == b.Count && bytes.Equal(a.Records, b.Records)
}

func (l *fileLog) Append(all ...commit.Entry) error {
	return errors.Join(l.real.Append(all...), l.simOpen.Append(all...))
}
func (l *fileLog) Sync() error { return errors.Join(l.real.Sync(), l.simOpen.Sync()) }
func (l *fileLog) CutBack(last uint64) error {
	return errors.Join(l.real.CutBack(last), l.simOpen.CutBack(last))
}
func (l *fileLog) First() uint64  { return l.real.First() }
func (l *fileLog) Last() uint64   { return l.real.Last() }
func (l *fileLog) Synced() uint64 { return l.real.Synced() }

func (l *fileLog) Commit(index uint64) {
	l.real.Commit(index)
	l.simOpen.Commit(index)
}

func (l *fileLog) Read(from uint64, fn func(commit.Entry) error) error { return l.real.Read(from, fn) }
func (l *fileLog) State(fn func(commit.Entry) error) error             { return l.real.State(fn) }

func (l *fileLog) Checkpoint(index, sequence uint64) (commit.Checkpoint, error) {
	a, err := l.real.Checkpoint(index, sequence)
	if err != nil {
		return nil, err
	}
	b, err := l.simOpen.Checkpoint(index, sequence)
	return fileCheckpoint{a, b}, err
}

func (l *fileLog) Install(index, sequence uint64) (commit.Checkpoint, error) {
	a, err := l.real.Install(index, sequence)
	if err != nil {
		return nil, err
	}
	b, err := l.simOpen.Install(index, sequence)
	return fileCheckpoint{a, b}, err
}

type fileCheckpoint struct{ real, model commit.Checkpoint }

func (c fileCheckpoint) Append(e commit.Entry) error {
	return errors.Join(c.real.Append(e), c.model.Append(e))
}
func (c fileCheckpoint) Commit() error { return errors.Join(c.real.Commit(), c.model.Commit()) }

func (c fileCheckpoint) Abort() {
	c.real.Abort()
	c.model.Abort()
}

// fileMeta is the meta in its file, and beside it the simulated one.
type fileMeta struct {
	simMeta
	real *metaFile
	node *simNode
}

func (m *fileMeta) load() (meta, error) {
	c, err := m.real.load()
	if m.node.files.adopt {
		m.disk.meta, m.disk.realMeta = &c, &c
	}
	want := m.disk.meta
	if err == nil && (want == nil || want.Term != c.Term || want.Vote != c.Vote || want.Commit != c.Commit || want.Members.Index != c.Members.Index) {
		m.node.sim.fail("files", "%v has %+v in its file; written was %+v", m.node, c, want)
	}
	return c, err
}

func (m *fileMeta) save(to *meta) error { return errors.Join(m.real.save(to), m.simMeta.save(to)) }

// harm damages one of the files of a node that is down.
func (n *simNode) harm() {
	s, f := n.sim, n.files
	var all []string
	err := filepath.WalkDir(f.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		s.fail("files", "%v", err)
		return
	}
	path := all[s.random.IntN(len(all))]
	name, _ := filepath.Rel(f.dir, path)
	b, err := os.ReadFile(path)
	if err != nil {
		s.fail("files", "%v", err)
		return
	}
	used := len(bytes.TrimRight(b, "\x00"))
	if used == 0 {
		return
	}
	at := s.random.IntN(used)
	if s.chance(3) { // near the end, where what is torn is
		at = used - 1 - s.random.IntN(min(used, 100))
	}
	what := ""
	switch s.random.IntN(8) {
	case 0:
		what = fmt.Sprintf("%s is cut off at %d of %d", name, at, used)
		err = os.Truncate(path, int64(at))
	case 1:
		what = fmt.Sprintf("%s is removed", name)
		err = os.Remove(path)
	case 2:
		from := at &^ 511
		what = fmt.Sprintf("%s is zero from %d to %d of %d", name, from, from+512, used)
		clear(b[from:min(from+512, len(b))])
		err = os.WriteFile(path, b, 0o600)
	default:
		what = fmt.Sprintf("%s has another bit at %d of %d", name, at, used)
		b[at] ^= 1 << s.random.IntN(8)
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		s.fail("files", "%v", err)
		return
	}
	f.damage = what
	s.counts["damaged"]++
	s.note("%v: %s", n, what)
}

// memoryDir returns a directory in memory if there are such: nothing here depends on a disk, and flushes take time.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "clustermap-")
	if err != nil {
		return t.TempDir()
	}
	return dir
}

var simDamages = flag.Int("sim.damages", 12, "how often TestDamagedFiles damages a file")

// TestDamagedFiles shows that a node whose files were damaged while it was down does not start, and says what is
// damaged, or has exactly what it had: the member file, the log, and a checkpoint.
func TestDamagedFiles(t *testing.T) {
	seed, counts := *simFrom, map[string]int{}
	if *simSeed != 0 {
		seed = *simSeed
	}
	for ; counts["damaged"] < *simDamages; seed++ {
		s := damages(t, seed)
		for k, v := range s.counts {
			counts[k] += v
		}
		if *simSeed != 0 {
			t.Log(s.transcript(len(s.notes)))
		}
		if s.failed != "" {
			t.Fatalf("VIOLATED %s\nseed %d; repeat with -run '^TestDamagedFiles$' -sim.seed %d -v\n%s", s.failed, seed, seed, s.transcript(60))
		}
		if *simSeed != 0 {
			return
		}
	}
	t.Logf("%d damages, %d starts refused, %d without an effect", counts["damaged"], counts["refused"], counts["harmless"])
	if counts["refused"] == 0 {
		t.Errorf("none of %d damages was noticed", counts["damaged"])
	}
}

// damages runs a cluster, and damages the files of one node after the other.
func damages(t *testing.T, seed uint64) *sim {
	root := memoryDir(t)
	defer os.RemoveAll(root)
	defer restoreRandom()()
	s := newSim(seed, 3, 0, func(n *simNode) {
		n.files = &simFiles{dir: filepath.Join(root, fmt.Sprint(n.id))}
	})
	defer func() {
		for _, n := range s.nodes {
			if n.up {
				n.files.close()
			}
		}
	}()
	p := &profile{fault: 60, save: 40}
	for round := 0; round < 6 && s.failed == ""; round++ {
		s.faults = true
		s.chaos(p, 150)
		s.heal()
		if s.failed != "" {
			break
		}
		n := s.nodes[s.random.IntN(len(s.nodes))]
		n.crash(false)
		whole := filepath.Join(root, "whole")
		if err := copyDir(whole, n.files.dir); err != nil {
			t.Fatal(err)
		}
		n.harm()
		n.start()
		if err := n.files.refused; err != nil {
			s.counts["refused"]++
			var corrupt *commit.CorruptError
			if !errors.As(err, &corrupt) && !errors.Is(err, commit.ErrFormat) && !errors.Is(err, ErrForeign) {
				s.fail("unclear", "%v: after %s it refuses to start: %v", n, n.files.damage, err)
			}
			if err := copyDir(n.files.dir, whole); err != nil {
				t.Fatal(err)
			}
			n.files.damage, n.files.refused = "", nil
			n.start()
		} else if n.files.damage != "" {
			s.counts["harmless"]++
		}
		n.files.damage = ""
	}
	s.heal()
	return s
}
