package titanic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/testenv"

	bolt "go.etcd.io/bbolt"
)

// TestStore: after a restart the store has its requests and replies, in order, but not the
// removed ones.
func TestStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := testStore(t, dir, nil)
	first := mustPut(t, s, "echo", "one", "", "two")
	second := mustPut(t, s, "echo", "second")
	third := mustPut(t, s, "other", strings.Repeat("x", 100_000))
	gone := mustPut(t, s, "other", "x")
	if err := s.finish(entryOf(t, s, second), kindReply, frames("a", "b")); err != nil {
		t.Fatal(err)
	}
	late := entryOf(t, s, gone)
	if err := s.remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := s.finish(late, kindReply, frames("late")); !errors.Is(err, errGone) {
		t.Error("a reply for a request that was removed:", err)
	}
	if err := s.remove(gone, newUUID()); err != nil {
		t.Error("removed twice:", err)
	}
	for range 2 {
		agree(t, s)
		var waiting []UUID
		for e := range s.waiting.All() {
			waiting = append(waiting, e.id)
		}
		if len(waiting) != 2 || waiting[0] != first || waiting[1] != third {
			t.Errorf("%v wait, want %v and %v", waiting, first, third)
		}
		h, body, err := s.read(entryOf(t, s, first))
		if err != nil || h.service != "echo" || !same(body, frames("one", "", "two")) {
			t.Errorf("%+v %q %v", h, body, err)
		}
		if e, err := s.lookup(second); err != nil {
			t.Error(err)
		} else if _, body, err := s.read(e); err != nil || !same(body, frames("a", "b")) {
			t.Errorf("%q %v", body, err)
		}
		if _, err := s.lookup(third); !errors.Is(err, ErrPending) {
			t.Error(err)
		}
		if _, err := s.lookup(gone); !errors.Is(err, errGone) {
			t.Error(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		s = testStore(t, dir, nil)
	}
	// New requests continue the order.
	fourth := mustPut(t, s, "echo", "x")
	if s.waiting.Back().id != fourth || s.waiting.Back().key <= s.done.Back().key {
		t.Error("a new request is not the last one")
	}
}

// TestStoreClosed: a closed store returns errors.
func TestStoreClosed(t *testing.T) {
	t.Parallel()
	s := testStore(t, t.TempDir(), nil)
	id := mustPut(t, s, "echo", "x")
	e := entryOf(t, s, id)
	for range 2 {
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.put("echo", frames("x")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := s.finish(e, kindReply, frames("x")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := s.remove(id); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestStoreLocked: only one process at a time can open the store.
func TestStoreLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := testStore(t, dir, nil)
	if _, err := openStore(Options{Dir: dir}, nil, nil); !errors.Is(err, ErrLocked) || err.Error() != "titanic: store "+dir+": another process has the store open" {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	testStore(t, dir, nil)
}

// TestGroupCommit: requests that wait at the same time share a flush, and each put returns
// when its request is on disk. With a batch of one, each has its own flush.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{0, 1} {
		t.Run(fmt.Sprint("batch=", batch), func(t *testing.T) {
			t.Parallel()
			s := testStore(t, t.TempDir(), func(o *Options) { o.MaxBatch = batch })
			const callers, each = 32, 4
			// While the test has a transaction open, all of them wait.
			blocker, err := s.db.Begin(true)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for i := range each {
						id, err := s.put("echo", frames(number(i)))
						if err != nil {
							t.Error(err)
							return
						}
						if _, err := s.lookup(id); !errors.Is(err, ErrPending) {
							t.Error("not in the index when put has returned:", err)
						}
					}
				})
			}
			eventually(t, "all wait", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.entries == callers
			})
			if err := blocker.Rollback(); err != nil {
				t.Fatal(err)
			}
			all.Wait()
			agree(t, s)
			if s.count.changes != callers*each {
				t.Errorf("%d changes", s.count.changes)
			}
			if batch == 1 && s.count.commits != s.count.changes {
				t.Errorf("%d flushes for %d changes", s.count.commits, s.count.changes)
			}
			// One flush for the first change, one for all others of the first round.
			// Later rounds may need more.
			if most := uint64(2 + callers*(each-1)); batch == 0 && s.count.commits > most {
				t.Errorf("%d flushes for %d changes", s.count.commits, s.count.changes)
			}
		})
	}
}

// TestStoreBounds: requests beyond the bounds are not stored, and freed room is reused.
func TestStoreBounds(t *testing.T) {
	t.Parallel()
	s := testStore(t, t.TempDir(), func(o *Options) { o.MaxRequests, o.MaxBytes = 3, 10_000 })
	var ids []UUID
	for range 3 {
		ids = append(ids, mustPut(t, s, "echo", "x"))
	}
	if _, err := s.put("echo", frames("x")); !errors.Is(err, errFull) {
		t.Error("beyond the number:", err)
	}
	if err := s.remove(ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.put("echo", frames(strings.Repeat("x", 10_000))); !errors.Is(err, errFull) {
		t.Error("beyond the bytes:", err)
	}
	large := mustPut(t, s, "echo", strings.Repeat("x", 9_000))
	if err := s.remove(large); err != nil {
		t.Fatal(err)
	}
	// A reply counts, but is always stored.
	if err := s.finish(entryOf(t, s, ids[1]), kindReply, frames(strings.Repeat("x", 20_000))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.put("echo", frames("x")); !errors.Is(err, errFull) {
		t.Error("beyond the bytes with a reply:", err)
	}
	if err := s.remove(ids[1]); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, "echo", "x")
	agree(t, s)
}

// TestStoreAtRandom: many goroutines store requests and replies and remove them. The store
// equals a map, before and after a restart.
func TestStoreAtRandom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := testStore(t, dir, nil)
	var mu sync.Mutex
	want := map[UUID]string{} // "?" and the body of a request, "!" and that of a reply
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			var mine []UUID
			for i := range 60 {
				body := fmt.Sprint(g, ".", i, strings.Repeat("x", r.IntN(3000)))
				if r.IntN(2) == 0 || len(mine) == 0 {
					id, err := s.put("echo", frames(body))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					want[id] = "?" + body
					mu.Unlock()
					mine = append(mine, id)
					continue
				}
				n := r.IntN(len(mine))
				id := mine[n]
				e, err := s.lookup(id)
				if errors.Is(err, ErrPending) && r.IntN(3) > 0 {
					if err := s.finish(e, kindReply, frames(body)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					want[id] = "!" + body
					mu.Unlock()
					continue
				}
				if err := s.remove(id); err != nil {
					t.Error(err)
				}
				mu.Lock()
				delete(want, id)
				mu.Unlock()
				mine = append(mine[:n], mine[n+1:]...)
			}
		})
	}
	all.Wait()
	for range 2 {
		agree(t, s)
		if len(s.index) != len(want) {
			t.Errorf("%d entries, want %d", len(s.index), len(want))
		}
		for id, text := range want {
			h, body, err := s.read(entryOf(t, s, id))
			mark := map[kind]string{kindRequest: "?", kindReply: "!"}[h.kind]
			if err != nil || len(body) != 1 || mark+string(body[0]) != text {
				t.Errorf("%v: %v %q %v", id, h.kind, body, err)
			}
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		s = testStore(t, dir, nil)
	}
	err := s.db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStoreFailed: after a failed flush the store accepts nothing and reports the reason.
func TestStoreFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := testStore(t, dir, nil)
	id := mustPut(t, s, "echo", "x")
	s.update = func(f func(*bolt.Tx) error) error { return errors.Join(s.db.Update(f), errTest) }
	if _, err := s.put("echo", frames("x")); !errors.Is(err, ErrFailed) || !errors.Is(err, errTest) {
		t.Fatal(err)
	}
	<-s.failed
	if _, err := s.put("echo", frames("x")); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
	if err := s.remove(id); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
	if _, err := s.lookup(id); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
	if err := s.close(); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
	s = testStore(t, dir, nil)
	if _, err := s.lookup(id); !errors.Is(err, ErrPending) {
		t.Error("what was acknowledged before is lost:", err)
	}
}

// TestFlushThatFailedIsNotTrusted: after a flush that failed, the next start copies the file,
// since the system's cache may have what no flush of that file writes any more. Others that
// start at the same time do not go on with the old file.
func TestFlushThatFailedIsNotTrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := testStore(t, dir, nil)
	ids := []UUID{mustPut(t, s, "echo", "x")}
	s.update = func(f func(*bolt.Tx) error) error { return errors.Join(s.db.Update(f), errTest) }
	if _, err := s.put("echo", frames("x")); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	s.close()
	before, err := os.Stat(databaseOf(dir))
	testenv.Must(t, err)
	var at sync.WaitGroup
	var mu sync.Mutex
	for i := range 8 {
		at.Go(func() {
			s, err := openStore(Options{Dir: dir, MaxRequests: 1000, MaxBytes: 64 << 20}, func(*entry) {}, func(*entry) {})
			if err != nil {
				if !errors.Is(err, ErrLocked) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, mustPut(t, s, "echo", number(i)))
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
	at.Wait()
	after, err := os.Stat(databaseOf(dir))
	testenv.Must(t, err)
	if os.SameFile(before, after) {
		t.Error("the file is the same")
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 1 || len(ids) < 2 {
		t.Errorf("%v, %v; %d stored", found, err, len(ids))
	}
	s = testStore(t, dir, nil)
	for _, id := range ids {
		if _, err := s.lookup(id); !errors.Is(err, ErrPending) {
			t.Errorf("%v: %v", id, err)
		}
	}
	s.close()
	if again, err := os.Stat(databaseOf(dir)); err != nil || !os.SameFile(again, after) {
		t.Error("copied once more:", err)
	}
}

// TestFailedStoreExecutesNothing: when the store has failed, no request is executed again and
// again whose reply cannot be stored.
func TestFailedStoreExecutesNothing(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	s := testServer(t, b, nil)
	submit(t, s, "late", "x")
	submit(t, s, "nobody's", "x")
	s.store.update = func(func(*bolt.Tx) error) error { return errTest }
	b.serve("late", echo)
	<-s.Failed()
	testenv.Within(t, "the dispatcher ends", s.dispatch.running.Wait)
	if err := s.Close(); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
}

// TestCorruptStore: a damaged file, or one of another program, is an error and does not end
// the process.
func TestCorruptStore(t *testing.T) {
	t.Parallel()
	whole := t.TempDir()
	s := testStore(t, whole, nil)
	for i := range 100 {
		mustPut(t, s, "echo", strings.Repeat(number(i), 200))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(databaseOf(whole))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"cut off":    func(b []byte) []byte { return b[:len(b)/8] },
		"zeros":      func(b []byte) []byte { return make([]byte, len(b)) },
		"other file": func([]byte) []byte { return []byte(strings.Repeat("something else\n", 1000)) },
		"pages": func(b []byte) []byte {
			for i := 2 * 4096; i < len(b); i += 4096 {
				clear(b[i : i+32])
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(databaseOf(dir), damage(append([]byte(nil), content...)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := openStore(Options{Dir: dir}, nil, nil); !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
		})
	}
	t.Run("empty", func(t *testing.T) { // a process that was killed before it wrote
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(databaseOf(dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(Options{Dir: dir}, nil, nil); !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	})
}

// TestCreateStore: a store can be created after a process was killed while it created one,
// and no temporary file remains.
func TestCreateStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(databaseOf(dir)+".new123", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	testStore(t, dir, nil)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || files[0].Name() != fileName {
		t.Errorf("%v %v", files, err)
	}
}

// TestAge: the time to live continues over a restart.
func TestAge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := testStore(t, dir, nil)
	request, reply := mustPut(t, s, "echo", "x"), mustPut(t, s, "echo", "y")
	if err := s.finish(entryOf(t, s, reply), kindReply, frames("z")); err != nil {
		t.Fatal(err)
	}
	if old := s.expired(time.Hour, time.Hour, 10); len(old) != 0 {
		t.Errorf("%v of the two are old", old)
	}
	eventually(t, "both are old", func() bool { return len(s.expired(5*time.Millisecond, 5*time.Millisecond, 10)) == 2 })
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s = testStore(t, dir, nil)
	if old := s.expired(5*time.Millisecond, time.Hour, 10); len(old) != 1 || old[0] != request {
		t.Errorf("%v are old, want the request %v", old, request)
	}
	if old := s.expired(time.Hour, 5*time.Millisecond, 10); len(old) != 1 || old[0] != reply {
		t.Errorf("%v are old, want the reply %v", old, reply)
	}
	if old := s.expired(0, 0, 1); len(old) != 1 {
		t.Errorf("%d where one was asked for", len(old))
	}
}
