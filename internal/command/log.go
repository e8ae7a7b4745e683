package command

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"clustermap/internal/peerlog"
)

// logLines is the number of lines that wait for the writer of a log; further ones are
// dropped.
const logLines = 1024

// NewLog returns the logger of a device, which writes warnings and errors as lines of text
// to w, standard error. Logging never waits: w may be a pipe without a reader, which must
// not hold up messages.
func NewLog(w io.Writer) *slog.Logger {
	l := &lineWriter{lines: make(chan []byte, logLines)}
	go l.run(w)
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// flushPeers is how often the log of a device is asked about what it has left out.
const flushPeers = 10 * time.Second

// PeerLog returns the log of the peers of a device, which writes to its logger. When ctx is
// done, what was left out is no longer counted.
func PeerLog(ctx context.Context, to *slog.Logger) *peerlog.Log {
	l := peerlog.New(to)
	go func() {
		ticker := time.NewTicker(flushPeers)
		defer ticker.Stop()
		for {
			select {
			case now := <-ticker.C:
				l.Flush(now)
			case <-ctx.Done():
				return
			}
		}
	}()
	return l
}

// lineWriter writes lines in a goroutine, which lasts as long as the process.
type lineWriter struct {
	lines   chan []byte
	dropped atomic.Int64
}

// Write queues a line, or drops it.
func (l *lineWriter) Write(line []byte) (int, error) {
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

func (l *lineWriter) run(w io.Writer) {
	for line := range l.lines {
		_, _ = w.Write(line)
		if n := l.dropped.Swap(0); n > 0 {
			slog.New(slog.NewTextHandler(w, nil)).Warn("lines of the log were dropped", "lines", n)
		}
	}
}
