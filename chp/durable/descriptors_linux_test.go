package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

func init() { tasks["descriptors"] = withoutDescriptors }

// TestGoesOnWithoutDescriptors: a program that has used up its descriptors can append, flush,
// finish a checkpoint, and store an epoch. What needs a new descriptor fails by itself, and succeeds when
// there are some again.
func TestGoesOnWithoutDescriptors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, out := startChild(t, "descriptors", dir) // descriptors are those of the whole process
	if said, err := io.ReadAll(out); err != nil || string(said) != "closed\n" {
		t.Errorf("the program says %q, %v", said, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	l, r := mustOpen(t, dir)
	if r.Torn != nil || l.CheckpointInfo().Index == 0 {
		t.Errorf("afterwards: %+v, checkpoint %d", r, l.CheckpointInfo().Index)
	}
	readAll(t, l, l.CheckpointInfo().Index+1)
}

// withoutDescriptors has a log open and takes all descriptors.
func withoutDescriptors(dir string) error {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		return err
	}
	few := syscall.Rlimit{Cur: 64, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		return err
	}
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		return err
	}
	var taken []*os.File
	take := func() {
		for f, err := os.Open(os.DevNull); err == nil; f, err = os.Open(os.DevNull) {
			taken = append(taken, f)
		}
	}
	for range 2 {
		// A checkpoint is begun while there are descriptors; its end needs none.
		if err := grow(l, 3); err != nil {
			return fmt.Errorf("with descriptors: %w", err)
		}
		c, err := l.Checkpoint(l.Last(), l.Last())
		if err != nil {
			return err
		}
		take()
		segment, _ := l.w.Place()
		if err := grow(l, 5); err != nil {
			return fmt.Errorf("without descriptors: %w", err)
		}
		if n, err := l.Reserve(); err != nil {
			return fmt.Errorf("space for %d bytes without descriptors: %w", n, err)
		}
		if err := c.Commit(); err != nil {
			return fmt.Errorf("the end of a checkpoint: %w", err)
		}
		take() // that of the checkpoint
		for what, f := range map[string]func() error{
			"a new checkpoint": func() error {
				c, err := l.Checkpoint(l.Last(), l.Last())
				if err == nil {
					c.Abort()
				}
				return err
			},
			"reading": func() error { return l.Read(l.First(), func(commit.Entry) error { return nil }) },
		} {
			err := f()
			for range 100 { // the log has closed a file meanwhile
				if err != nil {
					break
				}
				take()
				err = f()
			}
			if !errors.Is(err, syscall.EMFILE) {
				return fmt.Errorf("%s without a descriptor: %w", what, err)
			}
		}
		for range 3 { // a server of a pair takes over
			if err := l.SetEpoch(l.Epoch() + 1); err != nil {
				return fmt.Errorf("a new epoch without a descriptor: %w", err)
			}
			take()
		}
		for _, f := range taken {
			f.Close()
		}
		taken = taken[:0]
		if err := grow(l, 3); err != nil {
			return fmt.Errorf("with descriptors again: %w", err)
		}
		if now, _ := l.w.Place(); now < segment+2 {
			return fmt.Errorf("segment %d after %d, no new ones are begun", now, segment)
		}
		if c, err = l.Checkpoint(l.Last(), l.Last()); err == nil {
			err = c.Commit()
		}
		if err != nil {
			return fmt.Errorf("a checkpoint afterwards: %w", err)
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	fmt.Println("closed")
	return nil
}

// grow appends as much as some segments have, and flushes it now and then.
func grow(l *Log, segments int) error {
	for written, i := 0, 0; written < segments*smallSegment; i++ {
		e := entry(l.Last() + 1)
		if err := l.Append(e); err != nil {
			return err
		}
		if written += len(e.Records); i%10 == 9 {
			if err := l.Sync(); err != nil {
				return err
			}
		}
	}
	l.Commit(l.Last())
	return l.Sync()
}
