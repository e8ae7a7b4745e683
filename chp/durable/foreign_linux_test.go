package durable

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

// foreign is a piece of a state that has nothing to do with the entries of the
// log.
func foreign(i int) commit.Entry {
	return commit.Entry{Epoch: uint64(i % 3), First: uint64(i), Count: 7, Kind: 2, Time: int64(i), Records: content(uint64(i)+1_000_000, 3000)}
}

const foreignPieces = 20

// replace replaces all that a log holds by a foreign state.
func replace(l *Log, sequence uint64) error {
	c, err := l.Checkpoint(l.Last(), sequence)
	if err != nil {
		return err
	}
	defer c.Abort()
	for i := range foreignPieces {
		if err := c.Append(foreign(i)); err != nil {
			return err
		}
	}
	return c.Commit()
}

// holds tells which state a log has: false for that before replace, true for that
// after it. Anything else fails the test.
func holds(t *testing.T, dir string, d file.Disk, before []commit.Entry, sequence uint64) (after bool) {
	t.Helper()
	l, err := open(dir, Options{}, d)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var have []string
	r, err := l.Replay(func(e commit.Entry) error {
		e.Index = 0
		have = append(have, digest(e))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	after = r.Sequence == sequence
	if after {
		for i := range foreignPieces {
			want = append(want, digest(foreign(i)))
		}
	} else {
		for _, e := range before {
			e.Index = 0
			want = append(want, digest(e))
		}
	}
	sameEntries(t, fmt.Sprintf("after=%v", after), have, want)
	return after
}

// TestForeignState: a server that is given the whole state of another one makes a
// checkpoint of that at its last entry. The checkpoint replaces all entries
// although they do not add up to it, and a crash leaves the one or the other.
func TestForeignState(t *testing.T) {
	t.Parallel()
	nothing := file.Disk{Data: func(*os.File) error { return nil }, Dir: func(*os.File) error { return nil }}
	for _, c := range []struct{ last, checkpoint uint64 }{{1, 0}, {90, 0}, {90, 40}, {90, 90}} {
		t.Run(fmt.Sprintf("%d entries, checkpoint at %d", c.last, c.checkpoint), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(c.last, c.checkpoint))
			dir := filepath.Join(t.TempDir(), "log")
			m := &memory{content: map[uint64][]byte{}, names: map[string]map[string]uint64{}}
			d := m.flushing()
			var before []commit.Entry
			replacing := false
			states := map[bool]int{}
			crash := func() {
				if replacing {
					image := m.crash(t, dir, r)
					states[holds(t, image, nothing, before, 777)]++
					os.RemoveAll(image)
				}
			}
			data, names := d.Data, d.Dir
			d.Data = func(f *os.File) error { crash(); err := data(f); crash(); return err }
			d.Dir = func(f *os.File) error { crash(); err := names(f); crash(); return err }
			l, _, err := tryOpen(dir, d)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { l.Close() }()
			fill(t, l, c.last, 4)
			flush(t, l)
			if c.checkpoint > 0 {
				writeCheckpoint(t, l, c.checkpoint, 3)
				for i := range uint64(3) {
					before = append(before, entry(i+1))
				}
			}
			for i := c.checkpoint + 1; i <= c.last; i++ {
				before = append(before, entry(i))
			}
			replacing = true
			if err := replace(l, 777); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				image := m.crash(t, dir, r)
				if !holds(t, image, nothing, before, 777) {
					t.Error("lost after Commit")
				}
			}
			replacing = false
			if states[false] == 0 || states[true] == 0 {
				t.Errorf("the test has not seen both states: %v", states)
			}
			// The log goes on behind it, with the entries of the other server.
			fill(t, l, c.last+50, 4)
			closeLog(t, l)
			l, err = open(dir, Options{}, d)
			if err != nil {
				t.Fatal(err)
			}
			n, next := 0, c.last+1
			_, err = l.Replay(func(e commit.Entry) error {
				if e.Index == c.last {
					n++
					return nil
				}
				if e.Index != next {
					return fmt.Errorf("entry %d, want %d", e.Index, next)
				}
				next++
				return same(e)
			})
			if err != nil || n != foreignPieces || next != c.last+51 {
				t.Error(n, next, err)
			}
		})
	}
}
