package durable

import (
	"context"
	"errors"
	"sync"
	"testing"

	"clustermap/chp/commit"
)

// TestCheckpointBesideAppends: entries that are appended while a checkpoint is
// written stand behind it.
func TestCheckpointBesideAppends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	g := commit.NewGroup(l, commit.GroupOptions{Policy: commit.Always(), Bytes: 100 << 10})
	var writer sync.WaitGroup
	stop := make(chan struct{})
	var last uint64
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			index, err := g.Append(context.Background(), entry(last+1))
			if err != nil {
				t.Error(err)
				return
			}
			last = index
		}
	})
	var at uint64
	for i := range 10 {
		for g.Written() < at+30 {
			if err := g.Err(); err != nil {
				t.Fatal(err)
			}
			if err := g.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		at = g.Written()
		c, err := l.Checkpoint(at, at*10)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 20 {
			if err := c.Append(entry(uint64(j + 1))); err != nil {
				t.Fatal(err)
			}
		}
		if i == 7 {
			c.Abort()
			at = l.CheckpointInfo().Index
			continue
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writer.Wait()
	if err := errors.Join(g.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	_, r := mustOpen(t, dir)
	if r.Checkpoint != at || r.Last != last {
		t.Errorf("checkpoint at %d, entries to %d: %+v", at, last, r)
	}
}
