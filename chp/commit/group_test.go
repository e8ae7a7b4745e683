package commit

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

var (
	testContext = testenv.Context
	eventually  = testenv.Eventually
)

// fakeLog keeps entries in memory. Its gate holds writes and flushes up.
type fakeLog struct {
	Log
	gate sync.Mutex

	mu        sync.Mutex
	entries   []Entry
	synced    uint64
	committed uint64
	writes    int
	syncs     int
	err       error // of the next Append or Sync
	discard   bool
	count     uint64
}

func (l *fakeLog) Append(entries ...Entry) error {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.discard {
		l.count += uint64(len(entries))
		return l.err
	}
	for _, e := range entries {
		e.Records = bytes.Clone(e.Records)
		l.entries = append(l.entries, e)
	}
	return l.err
}

func (l *fakeLog) Sync() error {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs++
	if l.err == nil {
		l.synced = uint64(len(l.entries)) + l.count
	}
	return l.err
}

func (l *fakeLog) Commit(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = index
}

func (l *fakeLog) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.entries))
}

func (l *fakeLog) Synced() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

func (l *fakeLog) seen() (writes, syncs int, committed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes, l.syncs, l.committed
}

// TestGroupCommit: entries appended while the log writes go into one write and one flush,
// and the log gets them unchanged.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	log := &fakeLog{}
	var mu sync.Mutex
	var told []uint64
	g := NewGroup(log, GroupOptions{Policy: Always(), OnDurable: func(index uint64) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, index)
	}})
	ctx := testContext(t)
	log.gate.Lock()
	buffer := make([]byte, 1000)
	for i := range uint64(100) {
		for j := range buffer {
			buffer[j] = byte(i)
		}
		index, err := g.Append(ctx, Entry{First: i, Count: 1, Records: buffer}) // the buffer is ours again
		if err != nil || index != i+1 {
			t.Fatal(index, err)
		}
	}
	if g.Durable() != 0 {
		t.Error("durable before any flush")
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	if err := g.Wait(short, 100); !errors.Is(err, context.DeadlineExceeded) {
		t.Error("Wait:", err)
	}
	cancel()
	log.gate.Unlock()
	if err := g.Wait(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(ctx, 101); !errors.Is(err, ErrOrder) {
		t.Error("Wait for what was not appended:", err)
	}
	if g.Durable() != 100 || g.Written() != 100 {
		t.Error(g.Durable(), g.Written())
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	writes, syncs, committed := log.seen()
	if writes > 2 || syncs > 2 || committed != 100 || g.Flushes() != uint64(syncs) {
		t.Errorf("%d writes, %d flushes, committed %d", writes, syncs, committed)
	}
	if len(told) != syncs || told[len(told)-1] != 100 {
		t.Errorf("told of %v", told)
	}
	for i, e := range log.entries {
		if e.Index != uint64(i)+1 || e.First != uint64(i) || !bytes.Equal(e.Records, bytes.Repeat([]byte{byte(i)}, 1000)) {
			t.Fatalf("entry %d: %+v", i+1, e)
		}
	}
	if _, err := g.Append(ctx, Entry{}); !errors.Is(err, ErrClosed) {
		t.Error("Append after Close:", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestGroupPressure: Append waits while as much as the bound allows is held, and one
// entry always finds room.
func TestGroupPressure(t *testing.T) {
	t.Parallel()
	log := &fakeLog{}
	g := NewGroup(log, GroupOptions{Policy: Never(), Bytes: 10_000})
	defer g.Close()
	ctx := testContext(t)
	if _, err := g.Append(ctx, Entry{Records: make([]byte, 50_000)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the write", func() bool { return g.Written() == 1 })
	log.gate.Lock()
	n := 0
	for ; ; n++ {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err := g.Append(short, Entry{Records: make([]byte, 1000)})
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil || n > 10 {
			t.Fatal(n, err)
		}
	}
	if n == 0 {
		t.Error("no room at all")
	}
	done := make(chan error)
	go func() {
		_, err := g.Append(ctx, Entry{Records: make([]byte, 1000)})
		done <- err
	}()
	log.gate.Unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestGroupPolicies: the times of flushes under each policy.
func TestGroupPolicies(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	t.Run("interval", func(t *testing.T) {
		t.Parallel()
		log := &fakeLog{}
		g := NewGroup(log, GroupOptions{Policy: Interval(time.Hour)})
		for range 5 {
			g.Append(ctx, Entry{})
		}
		eventually(t, "the write", func() bool { return g.Written() == 5 })
		if g.Durable() != 0 {
			t.Error("flushed before the time")
		}
		if err := g.Flush(ctx); err != nil || g.Durable() != 5 {
			t.Error(g.Durable(), err)
		}
		g.Append(ctx, Entry{})
		if err := g.Close(); err != nil || g.Durable() != 6 {
			t.Error("Close does not flush:", g.Durable(), err)
		}

		g = NewGroup(log, GroupOptions{Policy: Interval(time.Millisecond), HoldCommits: true})
		defer g.Close()
		for i := range uint64(20) {
			index, err := g.Append(ctx, Entry{})
			if err != nil || index != 7+i {
				t.Fatal(index, err)
			}
			if err := g.Wait(ctx, index); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, committed := log.seen(); committed != 6 {
			t.Error("committed", committed)
		}
	})
	t.Run("never", func(t *testing.T) {
		t.Parallel()
		log := &fakeLog{}
		g := NewGroup(log, GroupOptions{Policy: Never()})
		defer g.Close()
		g.Append(ctx, Entry{})
		eventually(t, "the write", func() bool { return g.Written() == 1 })
		if err := g.Flush(ctx); err != nil || g.Durable() != 1 {
			t.Error(g.Durable(), err)
		}
		if _, syncs, _ := log.seen(); syncs != 1 {
			t.Error(syncs, "flushes")
		}
	})
}

// TestGroupFailure: all that wait hear of an error, and so does everybody
// after them.
func TestGroupFailure(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	broken := errors.New("broken")
	log := &fakeLog{}
	g := NewGroup(log, GroupOptions{Policy: Always(), Bytes: 1000})
	log.gate.Lock()
	if _, err := g.Append(ctx, Entry{Records: make([]byte, 900)}); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	go func() { errs <- g.Wait(ctx, 1) }()
	go func() {
		for {
			if _, err := g.Append(ctx, Entry{Records: make([]byte, 900)}); err != nil {
				errs <- err
				return
			}
		}
	}()
	log.mu.Lock()
	log.err = broken
	log.mu.Unlock()
	log.gate.Unlock()
	for range 2 {
		if err := <-errs; !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	if err := g.Flush(ctx); !errors.Is(err, broken) {
		t.Error("Flush:", err)
	}
	if err := g.Close(); !errors.Is(err, broken) || g.Durable() != 0 {
		t.Error("Close:", err)
	}
}

// TestGroupAllocs: a batch costs no allocation once the buffers have grown.
func TestGroupAllocs(t *testing.T) {
	log := &fakeLog{discard: true}
	g := NewGroup(log, GroupOptions{Policy: Always(), Bytes: 1 << 20})
	defer g.Close()
	ctx := context.Background()
	records := make([]byte, 100<<10)
	for range 100 {
		g.Append(ctx, Entry{Records: records})
	}
	n := testenv.Allocs(0, 200, func() {
		if _, err := g.Append(ctx, Entry{Records: records}); err != nil {
			t.Fatal(err)
		}
	})
	// When Append has to wait, it makes a channel to wait for.
	if n > 1 {
		t.Errorf("%.1f allocations a batch", n)
	}
}

// TestNeverFlushesAtLast: also with the policy Never a Group flushes when much was written,
// since the log has each file open until it is flushed.
func TestNeverFlushesAtLast(t *testing.T) {
	t.Parallel()
	g := NewGroup(&fakeLog{discard: true}, GroupOptions{Policy: Never()})
	defer g.Close()
	ctx := testContext(t)
	records := make([]byte, 1<<20)
	for range flushBytes/len(records) - 1 {
		if _, err := g.Append(ctx, Entry{Records: records}); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.Flushes(); n > 0 {
		t.Errorf("%d flushes too early", n)
	}
	last, err := g.Append(ctx, Entry{Records: records})
	if err == nil {
		err = g.Wait(ctx, last)
	}
	if err != nil || g.Flushes() != 1 {
		t.Errorf("%d flushes, %v", g.Flushes(), err)
	}
}

// spaceLog is a fakeLog with a bound.
type spaceLog struct {
	fakeLog
	space int
}

func (l *spaceLog) Reserve() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.space
	for _, e := range l.entries {
		n -= len(e.Records) + EntrySpace
	}
	if n < 2000 {
		return max(n, 0), ErrFull
	}
	return n, nil
}

func (l *spaceLog) Short() bool { return false }

// A Group whose log has no more space refuses entries, writes and flushes those that it has
// accepted, and ends with the error of the log, which has not failed.
func TestGroupEndsWhenFull(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	log := &spaceLog{space: 20_000}
	g := NewGroup(log, GroupOptions{Policy: Never()})
	log.gate.Lock() // nothing is written
	for range 5 {
		if _, err := g.Append(ctx, Entry{Records: make([]byte, 3800)}); err != nil {
			t.Fatal(err)
		}
	}
	waiting, cancel := context.WithCancel(ctx)
	appended := make(chan error)
	go func() {
		_, err := g.Append(waiting, Entry{Records: make([]byte, 1)})
		appended <- err
	}()
	cancel()
	if err := <-appended; !errors.Is(err, context.Canceled) {
		t.Errorf("an entry is accepted for which there may be no space: %v", err)
	}
	log.gate.Unlock()
	if err := g.Wait(ctx, 5); err != nil {
		t.Error("accepted and not flushed:", err)
	}
	if _, err := g.Append(ctx, Entry{}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	<-g.Failed()
	if err := g.Close(); !errors.Is(err, ErrFull) || errors.Is(err, ErrFailed) {
		t.Error(err)
	}
	if log.Synced() != 5 {
		t.Errorf("%d entries are on disk", log.Synced())
	}
}
