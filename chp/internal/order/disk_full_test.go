package order

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/chp/internal/journal/disk"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// fullLog is a log that refuses entries from some time on.
type fullLog struct {
	commit.Log
	full atomic.Bool
}

func (l *fullLog) Append(e ...commit.Entry) error {
	if l.full.Load() {
		return commit.ErrFull
	}
	return l.Log.Append(e...)
}

// nobody publishes nothing.
type nobody struct{}

func (nobody) SendSpans(context.Context, []byte, []buf.Span, hooks.Owner) error { return nil }
func (nobody) Heartbeat(int64)                                                  {}

// After the log has refused an entry, nothing is published, with any policy: a restart would
// not bring it back.
func TestNothingIsPublishedAfterTheLogFailed(t *testing.T) {
	t.Parallel()
	for _, policy := range []commit.Policy{commit.Always(), commit.Interval(time.Millisecond), commit.Never()} {
		files, err := durable.Open(t.TempDir(), durable.Options{})
		if err != nil {
			t.Fatal(err)
		}
		log := &fullLog{Log: files}
		q := new(Sequencer)
		begin := state.New(1)
		j, _, err := disk.Open(disk.Options{Log: log, Policy: policy, Changed: q.Committed}, begin)
		if err != nil {
			t.Fatal(err)
		}
		q.Init(Options{Live: new(live.Map), State: begin, Journal: j, Publisher: nobody{}})
		set := func() {
			wire := kvmsg.AppendRecord(nil, []byte("/key"), 0, nil, nil, []byte("value"))
			size, tag, _, err := kvmsg.Inspect(wire, kvmsg.FromServer, 0)
			if err != nil {
				t.Fatal(err)
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			q.apply(&state.Entry{Head: state.Head{At: timer.Now()}, Wire: wire, Spans: []buf.Span{{End: uint32(size), Tag: tag}}}, "")
		}
		set()
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		published := func() int64 { return q.Live().Now().Last() }
		before := published()
		failed := func() bool {
			select {
			case <-j.Failed():
				return true
			default:
				return false
			}
		}
		log.full.Store(true)
		for !failed() {
			// These may be published, as long as the log has not failed.
			set()
			before = published()
			runtime.Gosched()
		}
		before = max(before, published())
		for range 3 {
			set()
		}
		if got := published(); got > before {
			t.Errorf("%v: %d updates are published after the log has failed", policy, got-before)
		}
		if err := j.Close(); !errors.Is(err, commit.ErrFull) {
			t.Errorf("%v: Close returned %v", policy, err)
		}
	}
}
