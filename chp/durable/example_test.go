package durable_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
)

// A program appends two batches, waits until they are on the disk, makes a
// checkpoint, and finds everything again after a restart.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	dir = filepath.Join(dir, "data")
	ctx := context.Background()

	start := func() *durable.Log {
		l, err := durable.Open(dir, durable.Options{})
		if err != nil {
			log.Fatal(err)
		}
		r, err := l.Replay(func(e commit.Entry) error {
			fmt.Printf("entry %d: %s\n", e.Index, e.Records)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("replayed to entry %d\n", r.Last)
		return l
	}

	l := start()
	g := commit.NewGroup(l, commit.GroupOptions{Policy: commit.Always()})
	for _, batch := range []string{"a=1", "b=2"} {
		if _, err := g.Append(ctx, commit.Entry{Count: 1, Records: []byte(batch)}); err != nil {
			log.Fatal(err)
		}
	}
	if err := g.Flush(ctx); err != nil {
		log.Fatal(err)
	}

	// The checkpoint replaces the entries 1 and 2.
	c, err := l.Checkpoint(2, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Abort()
	if err := c.Append(commit.Entry{Count: 2, Records: []byte("a=1 b=2")}); err != nil {
		log.Fatal(err)
	}
	if err := c.Commit(); err != nil {
		log.Fatal(err)
	}
	if _, err := g.Append(ctx, commit.Entry{Count: 1, Records: []byte("c=3")}); err != nil {
		log.Fatal(err)
	}
	if err := g.Close(); err != nil { // flushes
		log.Fatal(err)
	}
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}

	start().Close()
	// Output:
	// replayed to entry 0
	// entry 2: a=1 b=2
	// entry 3: c=3
	// replayed to entry 3
}
