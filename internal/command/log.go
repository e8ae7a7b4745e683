package command

import (
	"context"
	"io"
	"log/slog"
	"time"

	"clustermap/internal/lograte"
	"clustermap/internal/peerlog"
)

// NewLog returns the logger of a device, which writes warnings and errors as lines of text
// to w, standard error. Logging never waits: w may be a pipe without a reader, which must
// not hold up messages.
func NewLog(w io.Writer) *slog.Logger {
	return lograte.NewQueue(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})).Logger()
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
