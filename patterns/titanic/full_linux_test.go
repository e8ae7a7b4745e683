package titanic

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"clustermap/internal/tmpfs"
)

// fullServer is a server on a disk of a few MiB, one of which is used by the filler.
func fullServer(t *testing.T, b broker) (s *Server, dir, filler string) {
	t.Helper()
	root := tmpfs.Mount(t, "size=4m")
	dir, filler = filepath.Join(root, "data"), filepath.Join(root, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s = testServer(t, b, func(o *Options) { o.Dir = dir })
	s.store.pause = time.Millisecond
	return s, dir, filler
}

// intact fails the test if the file of a closed store is damaged.
func intact(t *testing.T, dir string) {
	t.Helper()
	db, err := bolt.Open(databaseOf(dir), 0o600, &bolt.Options{ReadOnly: true, Timeout: lockTimeout, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestFullDisk: on a full disk clients are answered 500, and no acknowledged request is
// lost or damaged. Stored messages can be read and deleted. When the disk has room, the
// server continues.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	s, dir, filler := fullServer(t, b)
	body := strings.Repeat("x", 10_000)
	var mu sync.Mutex
	var ids []string
	var refused atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				status, content := call(t, s.request, "late", body)
				switch status {
				case "200":
					mu.Lock()
					ids = append(ids, string(content[0]))
					mu.Unlock()
				case "500":
					refused.Add(1)
				default:
					t.Errorf("answered %s", status)
				}
			}
		})
	}
	all.Wait()
	if len(ids) < 50 || refused.Load() < 50 {
		t.Fatalf("%d were stored, %d refused", len(ids), refused.Load())
	}
	agree(t, s.store)
	if err := s.Err(); err != nil {
		t.Fatal("a full disk is no failure of the store:", err)
	}
	// Deleting works on a full disk.
	for _, id := range ids[:20] {
		all.Go(func() {
			status, content := call(t, s.close, id)
			wantAnswer(t, status, content, "200")
		})
	}
	all.Wait()
	ids = ids[20:]
	for range 5 {
		eventually(t, "there is room again", func() bool {
			status, content := call(t, s.request, "late", body)
			if status == "200" {
				ids = append(ids, string(content[0]))
			}
			return status == "200"
		})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	intact(t, dir)

	// A new server starts on a full disk, and executes all requests when there is room
	// for the replies.
	s = testServer(t, b, func(o *Options) { o.Dir = dir })
	if st := s.Status(); st.Waiting != len(ids) {
		t.Errorf("%d wait, want %d", st.Waiting, len(ids))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	b.serve("late", echo)
	for _, id := range ids {
		status, content := answered(t, s, id)
		wantAnswer(t, status, content, "200", body)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	intact(t, dir)
}

// TestFullDiskForReply: a reply waits in memory while the disk is full, and the request is
// not executed again.
func TestFullDiskForReply(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	var executed atomic.Int64
	b.serve("grow", func(_ context.Context, body [][]byte) ([][]byte, error) {
		executed.Add(1)
		return frames(strings.Repeat("y", 5<<20)), nil
	})
	s, dir, _ := fullServer(t, b)
	id := submit(t, s, "grow", "x")
	eventually(t, "the disk was found to be full", func() bool {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		return !s.store.full.IsZero()
	})
	status, content := call(t, s.reply, id)
	wantAnswer(t, status, content, "300")
	tmpfs.Remount(t, filepath.Dir(dir), "size=40m")
	status, content = answered(t, s, id)
	if status != "200" || len(content) != 1 || len(content[0]) != 5<<20 {
		t.Error(status)
	}
	if n := executed.Load(); n != 1 {
		t.Errorf("executed %d times", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	intact(t, dir)
}
