package chp

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
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

// After the log has refused an entry, nothing is published, with any policy: a restart would
// not bring it back.
func TestNothingIsPublishedAfterTheLogFailed(t *testing.T) {
	t.Parallel()
	for _, policy := range []commit.Policy{commit.Always(), commit.Interval(time.Millisecond), commit.Never()} {
		log := &fullLog{Log: openLog(t, t.TempDir())}
		s, err := NewServer(ServerOptions{Log: log, Sync: policy, Logger: quiet()})
		must(t, err)
		q := &s.sequencer
		set := func() {
			wire := kvmsg.AppendRecord(nil, []byte("/key"), 0, nil, nil, []byte("value"))
			size, tag, _, err := kvmsg.Inspect(wire, kvmsg.FromServer, 0)
			must(t, err)
			q.mu.Lock()
			defer q.mu.Unlock()
			q.apply(&state.Entry{Head: state.Head{At: timer.Now()}, Wire: wire, Spans: []buf.Span{{End: uint32(size), Tag: tag}}})
		}
		set()
		eventually(t, "the first update is published", func() bool { return s.Sequence() == s.ordered() })
		before := s.Sequence()
		failed := func() bool {
			select {
			case <-q.journal.Failed():
				return true
			default:
				return false
			}
		}
		log.full.Store(true)
		for !failed() {
			// These may be published, as long as the log has not failed.
			set()
			before = s.Sequence()
			runtime.Gosched()
		}
		before = max(before, s.Sequence())
		for range 3 {
			set()
		}
		if got := s.Sequence(); got > before {
			t.Errorf("%v: %d updates are published after the log has failed", policy, got-before)
		}
		if err := s.Close(); !errors.Is(err, commit.ErrFull) {
			t.Errorf("%v: Close returned %v", policy, err)
		}
	}
}
