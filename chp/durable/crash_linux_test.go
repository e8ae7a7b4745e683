package durable

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"syscall"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

var crashSeeds = flag.Int("crashes", 6, "number of seeds of TestCrash; each makes some 40 crashes")

const sector = 512

// A memory is the content that a disk is sure to have: for each file, by its inode, the
// content at its last flush, and for each directory the names at its last flush.
type memory struct {
	content map[uint64][]byte
	names   map[string]map[string]uint64
}

func inode(st os.FileInfo) uint64 { return st.Sys().(*syscall.Stat_t).Ino }

// list returns the files of a directory.
func list(dir string) map[string]uint64 {
	all := map[string]uint64{}
	found, _ := os.ReadDir(dir)
	for _, d := range found {
		if st, err := d.Info(); err == nil && !d.IsDir() && d.Name() != format.LockName {
			all[d.Name()] = inode(st)
		}
	}
	return all
}

// flushing returns a disk that flushes into m.
func (m *memory) flushing() file.Disk {
	return file.Disk{
		Data: func(f *os.File) error {
			st, err := f.Stat()
			if err != nil {
				return err
			}
			// A segment was opened under another name.
			b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			if err != nil {
				return err
			}
			m.content[inode(st)] = b
			return nil
		},
		Dir: func(d *os.File) error {
			m.names[filepath.Clean(d.Name())] = list(d.Name())
			return nil
		},
	}
}

// crash makes a directory as it may be after a crash: each sector, size and name that was
// not flushed is there or not.
func (m *memory) crash(t *testing.T, dir string, r *rand.Rand) string {
	t.Helper()
	// Of each way in which much is lost or kept there should be some.
	share := []float64{0, 0.1, 0.5, 0.9, 1}[r.IntN(5)]
	return m.left(t, dir, func() bool { return r.Float64() < share }, r)
}

// left makes a directory of what was flushed, and of the rest what is kept.
func (m *memory) left(t *testing.T, dir string, kept func() bool, r *rand.Rand) string {
	t.Helper()
	to := t.TempDir()
	for _, sub := range []string{"", format.LogName} {
		from := filepath.Join(dir, sub)
		if err := os.MkdirAll(filepath.Join(to, sub), 0o700); err != nil {
			t.Fatal(err)
		}
		now, before := list(from), m.names[from]
		union := map[string]bool{}
		for name := range now {
			union[name] = true
		}
		for name := range before {
			union[name] = true
		}
		var names []string
		for name := range union {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			ino, present := before[name]
			if newer, there := now[name]; newer != ino || there != present {
				if kept() {
					ino, present = newer, there
				}
			}
			if !present {
				continue
			}
			flushed := m.content[ino]
			current := flushed
			if now[name] == ino {
				var err error
				if current, err = os.ReadFile(filepath.Join(from, name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(to, sub, name), mix(flushed, current, kept, r), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// mix mixes two contents of a file by sectors.
func mix(flushed, current []byte, kept func() bool, r *rand.Rand) []byte {
	size := len(flushed)
	if kept() {
		size = len(current)
	}
	image := make([]byte, size)
	copy(image, flushed)
	for i := 0; i < size; i += sector {
		end := min(i+sector, size)
		var s [sector]byte
		if i < len(current) {
			copy(s[:], current[i:])
		}
		if bytes.Equal(image[i:end], s[:end-i]) {
			continue
		}
		switch {
		case kept():
			copy(image[i:end], s[:])
		case r != nil && r.IntN(8) == 0: // torn: its beginning or its end
			n := r.IntN(end - i)
			if r.IntN(2) == 0 {
				copy(image[i:i+n], s[:])
			} else {
				copy(image[i+n:end], s[n:])
			}
		}
	}
	return image
}

// TestCrash crashes the machine at random places of a random run, and loses, tears and reorders
// unflushed writes. The flushed entries are read back, no entry appears that was not
// written, and no crash is taken for damage.
func TestCrash(t *testing.T) {
	t.Parallel()
	nothing := file.Disk{Data: func(*os.File) error { return nil }, Dir: func(*os.File) error { return nil }}
	for seed := range *crashSeeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed), 3))
			dir := filepath.Join(t.TempDir(), "log")
			m := &memory{content: map[uint64][]byte{}, names: map[string]map[string]uint64{}}
			d := m.flushing()
			crashes, torn := 0, 0
			var l *Log
			var atLeast uint64 // flushed, and not cut back since
			most := uint64(0)  // written
			check := func(when string) {
				image := m.crash(t, dir, r)
				crashes++
				l2, got, err := tryOpen(image, nothing)
				if err != nil {
					t.Fatalf("crash %d, %s, %d flushed: %v", crashes, when, atLeast, err)
				}
				if got.Last < atLeast || got.Last > most {
					t.Fatalf("crash %d, %s: %d flushed, %d written: %+v", crashes, when, atLeast, most, got)
				}
				if got.Torn != nil {
					torn++
				}
				// It goes on from there.
				fill(t, l2, got.Last+uint64(r.IntN(40)), 3)
				last := l2.Last()
				closeLog(t, l2)
				l2, got, err = tryOpen(image, nothing)
				if err != nil || got.Last != last || got.Torn != nil {
					t.Fatalf("crash %d, %s, more entries up to %d, restart: %+v %v", crashes, when, last, got, err)
				}
				closeLog(t, l2)
				os.RemoveAll(image)
			}
			real := d.Data
			beside := false // entries may be appended beside the flush
			d.Data = func(f *os.File) error {
				more := func() {
					if beside && r.IntN(3) == 0 {
						n := 1 + r.IntN(30)
						most += uint64(n)
						fill(t, l, most, n)
					}
				}
				more()
				if l != nil && r.IntN(6) == 0 {
					check("in the middle of a flush")
				}
				err := real(f)
				more()
				return err
			}
			open := func() {
				var err error
				var got commit.Replayed
				if l, got, err = tryOpen(dir, d); err != nil {
					t.Fatal(err)
				}
				if got.Last != most {
					t.Fatalf("restart: %+v, want %d", got, most)
				}
				atLeast = got.Last
			}
			open()
			for range 120 {
				switch r.IntN(12) {
				case 0, 1, 2:
					check("between calls")
				case 3, 4, 5:
					last := l.Last()
					beside = true
					if err := l.Sync(); err != nil {
						t.Fatal(err)
					}
					beside = false
					if atLeast = l.Synced(); atLeast < last {
						t.Fatalf("flushed to %d, want %d", atLeast, last)
					}
					l.Commit(atLeast)
				case 6:
					if r.IntN(3) == 0 && l.Last() > 0 {
						writeCheckpoint(t, l, max(l.Last()-min(r.Uint64N(5), l.Last()-1), l.CheckpointInfo().Index), 4)
						atLeast = l.Synced()
					}
				case 7:
					if keep := max(atLeast, 3) - 3 + r.Uint64N(8); keep <= l.Last() && keep >= l.CheckpointInfo().Index && r.IntN(3) == 0 {
						atLeast = min(atLeast, keep)
						if err := l.CutBack(keep); err != nil {
							t.Fatal(err)
						}
						atLeast, most = keep, keep
					}
				case 8:
					if r.IntN(6) == 0 {
						closeLog(t, l)
						l = nil
						open()
					}
				default:
					n := 1 + r.IntN(12)
					most += uint64(n)
					fill(t, l, most, n)
				}
			}
			closeLog(t, l)
			t.Logf("%d crashes, %d torn ends, %d entries", crashes, torn, most)
			if crashes < 15 || torn == 0 {
				t.Error("the test has tested too little")
			}
		})
	}
}

// TestCrashWhileEntriesAreRemoved: what is left behind the place to which a log was being cut
// back does not vouch for the entries there, whatever part of it the disk still has.
func TestCrashWhileEntriesAreRemoved(t *testing.T) {
	t.Parallel()
	nothing := file.Disk{Data: func(*os.File) error { return nil }, Dir: func(*os.File) error { return nil }}
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 4))
		dir := filepath.Join(t.TempDir(), "log")
		m := &memory{content: map[uint64][]byte{}, names: map[string]map[string]uint64{}}
		d := m.flushing()
		real, keep, last := d.Data, uint64(0), uint64(0)
		d.Data = func(f *os.File) error {
			if keep > 0 {
				for range 10 {
					image := m.left(t, dir, func() bool { return r.IntN(2) == 0 }, r)
					l, got, err := tryOpen(image, nothing)
					if err != nil || got.Last < keep || got.Last > last {
						t.Fatalf("seed %d, cut back from %d to %d: %+v, %v", seed, last, keep, got, err)
					}
					closeLog(t, l)
					os.RemoveAll(image)
				}
			}
			return real(f)
		}
		l, _, err := tryOpen(dir, d)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			last += 5
			fill(t, l, last, 5)
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			l.Commit(last)
		}
		keep = 1 + r.Uint64N(last-10)
		if err := l.CutBack(keep); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
	}
}
