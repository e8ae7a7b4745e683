package durable

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// A forgetful is a disk below a system like ext4: if it cannot flush pages of a file, it
// says so once, keeps them in its cache as if they were written, and never writes them to
// that file again.
type forgetful struct {
	memory
	t      *testing.T
	broken bool // flushes of segments fail
	pages  map[uint64]map[int]bool
}

func (d *forgetful) disk() file.Disk {
	real := d.flushing()
	return file.Disk{Dir: real.Dir, Data: func(f *os.File) error {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		file := inode(st)
		before := d.content[file]
		if err := real.Data(f); err != nil {
			return err
		}
		const page = 4096
		after := d.content[file]
		if d.broken && filepath.Base(filepath.Dir(f.Name())) == format.LogName {
			d.content[file] = before
			if d.pages[file] == nil {
				d.pages[file] = map[int]bool{}
				// While it is open, no other file gets its number.
				if fd, err := syscall.Dup(int(f.Fd())); err == nil {
					d.t.Cleanup(func() { syscall.Close(fd) })
				}
			}
			for at := 0; at < len(after); at += page {
				end := min(at+page, len(after))
				if end > len(before) || !bytes.Equal(before[at:end], after[at:end]) {
					d.pages[file][at] = true
				}
			}
			return syscall.EIO
		}
		for at := range d.pages[file] {
			if at < len(after) {
				clear(after[at:min(at+page, len(after))])
				if at < len(before) {
					copy(after[at:min(at+page, len(after))], before[at:])
				}
			}
		}
		return nil
	}}
}

// TestFlushThatFailedIsNotTrusted: after a flush that failed, what the next start reads may be
// in the system's cache only, and no flush writes it. What is flushed from then on is on the
// disk nevertheless, and so is everything before it.
func TestFlushThatFailedIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string]uint64{"in a segment": 20, "in several": 300} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			d := &forgetful{memory: memory{content: map[uint64][]byte{}, names: map[string]map[string]uint64{}}, t: t, pages: map[uint64]map[int]bool{}}
			l, _, err := tryOpen(dir, d.disk())
			if err != nil {
				t.Fatal(err)
			}
			fill(t, l, 10, 1)
			flush(t, l)
			fill(t, l, 10+entries, 1)
			d.broken = true
			if err := l.Sync(); !errors.Is(err, commit.ErrFailed) {
				t.Fatal("Sync:", err)
			}
			_ = l.Close()
			d.broken = false

			l, r, err := tryOpen(dir, d.disk())
			if err != nil {
				t.Fatal(err)
			}
			fill(t, l, r.Last+100, 1)
			flush(t, l)
			image := d.left(t, dir, func() bool { return false }, nil) // the machine stops
			again, r, err := tryOpen(image, file.Real)
			if err != nil {
				t.Fatalf("%d entries were flushed: %v", l.Last(), err)
			}
			if r.Last < l.Last() {
				t.Errorf("%d entries were flushed, %d are there", l.Last(), r.Last)
			}
			closeLog(t, again)
			closeLog(t, l)
		})
	}
}
