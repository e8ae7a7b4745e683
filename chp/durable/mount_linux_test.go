package durable

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/internal/testenv"
	"clustermap/internal/tmpfs"
)

func remountReadOnly(t *testing.T, root string) {
	t.Helper()
	if err := syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk: a log that finds the disk full says so, loses nothing that was
// flushed, and works again when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	root := tmpfs.Mount(t, "size=1536k")
	dir, filler := filepath.Join(root, "log"), filepath.Join(root, "filler")
	if err := os.WriteFile(filler, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { l.Close() }()
	for err = nil; err == nil; {
		if l.Last() > 10_000 {
			t.Fatal("the disk does not get full")
		}
		if err = l.Append(entry(l.Last() + 1)); err == nil && l.Last()%5 == 0 {
			err = l.Sync()
			l.Commit(l.Synced())
		}
	}
	if !errors.Is(err, commit.ErrFull) || !errors.Is(err, commit.ErrFailed) {
		t.Fatal(err)
	}
	synced, last := l.Synced(), l.Last()
	if synced < 100 {
		t.Fatalf("full after %d entries", synced)
	}
	if err := l.Append(entry(last + 1)); !errors.Is(err, commit.ErrFull) {
		t.Error("Append to a full log:", err)
	}
	if err := l.Close(); !errors.Is(err, commit.ErrFull) {
		t.Error("Close of a full log:", err)
	}
	// Still full.
	l2, _, err := tryOpen(dir, file.Real)
	if err == nil {
		l2.Close()
	} else if !errors.Is(err, commit.ErrFull) {
		t.Error("Open on a full disk:", err)
	}
	// The stored entries can be read even so.
	report, err := Check(dir, nil)
	if err != nil || report.Defect != nil || report.Last < synced {
		t.Fatalf("Check: %v\n%v", err, report)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l, r, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	if r.Last < synced || r.Last > last+1 {
		t.Fatalf("%d entries were flushed, %d written: %+v", synced, last, r)
	}
	fill(t, l, r.Last+100, 1)
	flush(t, l)
	closeLog(t, l)
}

// TestFullDiskForCheckpoint: a checkpoint for which there is no room fails
// alone.
func TestFullDiskForCheckpoint(t *testing.T) {
	t.Parallel()
	dir := tmpfs.Mount(t, "size=512k")
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill(t, l, 10, 1)
	flush(t, l)
	c, err := l.Checkpoint(10, 0)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		e := entry(1)
		e.Records = content(1, 100<<10)
		err = c.Append(e)
	}
	if !errors.Is(err, commit.ErrFull) {
		t.Fatal(err)
	}
	if err := c.Commit(); !errors.Is(err, commit.ErrFull) {
		t.Fatal(err)
	}
	fill(t, l, 20, 1)
	flush(t, l)
	writeCheckpoint(t, l, 15, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, r, err := tryOpen(dir, file.Real)
	if err != nil || r.Last != 20 || r.Checkpoint != 15 {
		t.Fatalf("%+v %v", r, err)
	}
	closeLog(t, l)
}

// TestFullDiskForNext: a disk that was full when the next segment was to be allocated, and no
// longer is when that is needed, does not end the log.
func TestFullDiskForNext(t *testing.T) {
	t.Parallel()
	root := tmpfs.Mount(t, fmt.Sprintf("size=%d", 7*smallSegment/2))
	dir := filepath.Join(root, "log")
	l, _, err := tryOpen(dir, file.Real)
	testenv.Must(t, err)
	segment := func() uint64 { l.mu.Lock(); defer l.mu.Unlock(); seq, _ := l.w.Place(); return seq }
	n := uint64(0)
	begin := func() { // the next segment
		for before := segment(); segment() == before; {
			n++
			testenv.Must(t, l.Append(entry(n)))
		}
	}
	<-l.w.Next.Done
	filler := filepath.Join(root, "filler")
	err = os.WriteFile(filler, bytes.Repeat([]byte{1}, smallSegment), 0o600)
	testenv.Must(t, err)
	begin()
	<-l.w.Next.Done
	if l.w.Next.Err == nil {
		t.Fatal("there was room for the next segment")
	}
	testenv.Must(t, os.Remove(filler))
	begin()
	flush(t, l)
	testenv.Must(t, l.Close())
	l, r, err := tryOpen(dir, file.Real)
	if err != nil || r.Last != n {
		t.Fatalf("%+v %v, want %d entries", r, err, n)
	}
	closeLog(t, l)
}

// TestFullDiskForNew: no log can be made, and a later try works.
func TestFullDiskForNew(t *testing.T) {
	t.Parallel()
	root := tmpfs.Mount(t, "size=300k")
	filler := filepath.Join(root, "filler")
	err := os.WriteFile(filler, bytes.Repeat([]byte{1}, 300<<10), 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "log")
	if _, _, err := tryOpen(dir, file.Real); !errors.Is(err, commit.ErrFull) {
		t.Error(err)
	}
	os.Remove(filler)
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 3, 1)
	closeLog(t, l)
}

// TestFullDiskStoresEpochs: a server of a pair can take over, for which it stores an epoch, while
// its disk is full.
func TestFullDiskStoresEpochs(t *testing.T) {
	t.Parallel()
	root := tmpfs.Mount(t, "size=512k")
	dir := filepath.Join(root, "log")
	l, _, err := tryOpen(dir, file.Real)
	testenv.Must(t, err)
	fill(t, l, 3, 1)
	flush(t, l)
	<-l.w.Next.Done
	filler := filepath.Join(root, "filler")
	if err := os.WriteFile(filler, make([]byte, 512<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal("the disk is not full:", err)
	}
	for epoch := range uint64(3) {
		testenv.Must(t, l.SetEpoch(epoch+1))
	}
	testenv.Must(t, l.Close())
	l, r, err := tryOpen(dir, file.Real)
	testenv.Must(t, err)
	if r.Last != 3 || l.Epoch() != 3 {
		t.Errorf("afterwards: %+v, epoch %d", r, l.Epoch())
	}
	closeLog(t, l)
}

// TestReadOnlyDisk: a log on a file system that is mounted for reading only cannot
// be opened, and can be checked.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	root := tmpfs.Mount(t, "size=1m")
	dir := filepath.Join(root, "log")
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 10, 1)
	closeLog(t, l)
	remountReadOnly(t, root)
	if _, _, err := tryOpen(dir, file.Real); !errors.Is(err, commit.ErrReadOnly) {
		t.Error("Open:", err)
	}
	if _, _, err := tryOpen(filepath.Join(root, "new"), file.Real); !errors.Is(err, commit.ErrReadOnly) {
		t.Error("Open of a new one:", err)
	}
	if report, err := Check(dir, nil); err != nil || report.Defect != nil || report.Last != 10 {
		t.Errorf("Check: %v\n%v", err, report)
	}
}

// TestNoPermission: the same for a directory that the user may not write.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everything; TestReadOnlyDisk stands for it")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, commit.ErrReadOnly) {
		t.Error(err)
	}
}

// TestFullDiskKeepsWhatWasAccepted: a Group whose entries are reported before they are on
// disk accepts them only while there is space for them.
func TestFullDiskKeepsWhatWasAccepted(t *testing.T) {
	t.Parallel()
	for _, policy := range []commit.Policy{commit.Interval(1e6), commit.Never()} {
		for _, pages := range []int{100, 117, 160, 203} { // it gets full at other places
			t.Run(fmt.Sprintf("%v %d", policy, pages), func(t *testing.T) {
				t.Parallel()
				root := tmpfs.Mount(t, fmt.Sprintf("size=%d", pages*4096))
				dir := filepath.Join(root, "log")
				l, _, err := tryOpen(dir, file.Real)
				testenv.Must(t, err)
				ctx := testenv.Context(t)
				g := commit.NewGroup(l, commit.GroupOptions{Policy: policy})
				accepted := uint64(0)
				for accepted < 10_000 {
					var index uint64
					if index, err = g.Append(ctx, entry(accepted+1)); err != nil {
						break
					}
					accepted = index
				}
				if !errors.Is(err, commit.ErrFull) {
					t.Fatalf("%d entries, then %v", accepted, err)
				}
				<-g.Failed()
				if err := g.Close(); !errors.Is(err, commit.ErrFull) || errors.Is(err, commit.ErrFailed) {
					t.Error(err)
				}
				if g.Durable() != accepted {
					t.Errorf("%d entries were accepted, %d are on disk", accepted, g.Durable())
				}
				testenv.Must(t, l.Close())
				if accepted < 20 {
					t.Errorf("full after %d entries", accepted)
				}
				report, err := Check(dir, nil)
				if err != nil || report.Defect != nil || report.Last != accepted || report.Torn != nil {
					t.Errorf("%d entries were accepted: %v %v", accepted, err, report)
				}
				// With more room it goes on.
				tmpfs.Remount(t, root, "size=4m")
				l, r, err := tryOpen(dir, file.Real)
				if err != nil || r.Last != accepted {
					t.Fatalf("%d entries were accepted: %+v %v", accepted, r, err)
				}
				fill(t, l, accepted+100, 3)
				closeLog(t, l)
			})
		}
	}
}
