package lograte

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// gatedHandler is a log handler that blocks until let is closed.
type gatedHandler struct {
	slog.Handler
	let chan struct{}
}

func (h gatedHandler) Handle(ctx context.Context, r slog.Record) error {
	<-h.let
	return h.Handler.Handle(ctx, r)
}

func (h gatedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return gatedHandler{h.Handler.WithAttrs(attrs), h.let}
}

// Nobody waits for a logger that blocks, and when it goes on it gets the number of
// records that it has missed.
func TestLoggerThatStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		let := make(chan struct{})
		q := NewQueue(gatedHandler{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), let})
		log := q.Logger().With("port", "collector")
		for range 5 * queueRoom {
			log.Debug("connected")
		}
		for range 100 {
			log.Warn("handshake failed")
		}
		close(let)
		synctest.Wait()
		if !strings.Contains(out.String(), "log records dropped") {
			t.Error("what was dropped is not told")
		}
		log.Info("stopped")
		q.Close()
		text := out.String()
		if !strings.Contains(text, "port=collector") || !strings.Contains(text, "msg=stopped") {
			t.Errorf("%.300s", text)
		}
		if n := strings.Count(text, "msg=connected"); n > 3*queueRoom {
			t.Errorf("%d records came through", n)
		}
	})
}

// Records of one kind are limited, the others are not touched by that, and the
// number of those left out is logged at the latest when the log is closed.
func TestRecordsOfOneKindAreLimited(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	q := NewQueue(slog.NewTextHandler(&out, nil))
	log := q.Logger()
	const n = 1000
	for range n {
		log.Warn("handshake failed")
	}
	log.Warn("something else")
	q.Close()
	q.Close()
	log.Warn("too late")
	text := out.String()
	came := strings.Count(text, `msg="handshake failed"`)
	if came > n/4 || !strings.Contains(text, "more=") || strings.Count(text, `msg="something else"`) != 1 || strings.Contains(text, "too late") {
		t.Errorf("%d of %d came through: %.500s", came, n, text)
	}
}

// A logger that never comes back does not keep its program from ending.
func TestCloseBesideAStuckLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		q := NewQueue(gatedHandler{slog.DiscardHandler, let})
		q.Logger().Warn("stuck")
		q.Close()
		close(let) // the goroutine ends, or the bubble would not
	})
}

// The number of records left out is logged after their period, also when no other
// record comes and the queue's goroutine was asleep when they were left out.
func TestLeftOutRecordsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		q := NewQueue(slog.NewTextHandler(&out, nil))
		defer q.Close()
		log := q.Logger()
		for range perKind {
			log.Warn("handshake failed")
		}
		synctest.Wait() // until its goroutine sleeps
		log.Warn("handshake failed")
		time.Sleep(2 * period) // no time passes
		synctest.Wait()
		if text := out.String(); strings.Count(text, "handshake failed") != perKind+1 || !strings.Contains(text, "more=1") {
			t.Errorf("%s", text)
		}
	})
}

// A record that was passed on is not kept, even if another one about dropped ones had to be
// added to its batch.
func TestQueueKeepsNoRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(slog.NewTextHandler(io.Discard, nil))
		defer q.Close()
		q.entries, q.dropped = make([]queued, 0, 1), 1 // no room for a second one
		value := new([64]byte)
		kept := weak.Make(value)
		q.Logger().Info("text", "value", value)
		value = nil
		synctest.Wait()
		runtime.GC()
		if kept.Value() != nil {
			t.Error("the queue keeps a record that the logger has taken")
		}
	})
}
