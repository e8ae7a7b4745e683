package chp

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
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

// guarded is a buffer for several goroutines.
type guarded struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

func (g *guarded) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}

// Nobody waits for a logger that blocks, and when it goes on it gets the number of
// records that it has missed.
func TestH22_LoggerThatStandsStill(t *testing.T) {
	t.Parallel()
	var out guarded
	let := make(chan struct{})
	q := newLogQueue(gatedHandler{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), let})
	log := q.logger().With("port", "collector")
	for range 5 * logRoom {
		log.Debug("connected")
	}
	for range 100 {
		log.Warn("handshake failed")
	}
	close(let)
	eventually(t, "what was dropped is told", func() bool { return strings.Contains(out.String(), "log records dropped") })
	log.Info("stopped")
	q.close()
	text := out.String()
	if !strings.Contains(text, "port=collector") || !strings.Contains(text, "msg=stopped") {
		t.Errorf("%.300s", text)
	}
	if n := strings.Count(text, "msg=connected"); n > 3*logRoom {
		t.Errorf("%d records came through", n)
	}
}

// Records of one kind are limited, the others are not touched by that, and the
// number of those left out is logged at the latest when the log is closed.
func TestH22_RecordsOfOneKindAreLimited(t *testing.T) {
	t.Parallel()
	var out guarded
	q := newLogQueue(slog.NewTextHandler(&out, nil))
	log := q.logger()
	const n = 1000
	for range n {
		log.Warn("handshake failed")
	}
	log.Warn("something else")
	q.close()
	q.close()
	log.Warn("too late")
	text := out.String()
	came := strings.Count(text, `msg="handshake failed"`)
	if came > n/4 || !strings.Contains(text, "more=") || strings.Count(text, `msg="something else"`) != 1 || strings.Contains(text, "too late") {
		t.Errorf("%d of %d came through: %.500s", came, n, text)
	}
}

// A logger that never comes back does not keep a server from ending.
func TestH22_CloseBesideAStuckLogger(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	s := startServer(t, ServerOptions{Logger: slog.New(gatedHandler{quiet().Handler(), let})})
	must(t, s.Close())
	close(let)
	<-s.logs.ended
}
