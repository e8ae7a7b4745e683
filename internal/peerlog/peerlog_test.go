package peerlog

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/sockets"
)

// TestManyAbortedHandshakesAreAWarning: that a peer closes a connection during the handshake
// is for level INFO, since health checks do it, but thousands of them are a warning, when the
// next one comes and also when none comes any more.
func TestManyAbortedHandshakesAreAWarning(t *testing.T) {
	t.Parallel()
	for _, flushed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			l := New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
			abort := func(host string) {
				l.Connection(sockets.Event{Kind: sockets.EventHandshakeFailed, Remote: host + ":1", Err: fmt.Errorf("closed: %w", io.EOF)}, "snapshot", true)
			}
			for range 1000 { // a health check each second, for some time
				abort("10.0.0.1")
				time.Sleep(time.Second)
				l.Flush(time.Now())
			}
			if out.Len() > 0 {
				t.Fatalf("a health check: %s", &out)
			}
			for range 1001 {
				abort("10.0.0.2")
			}
			if out.Len() > 0 {
				t.Fatalf("at once: %s", &out)
			}
			time.Sleep(10*time.Second + 1)
			if flushed {
				l.Flush(time.Now())
			} else {
				abort("10.0.0.2")
			}
			if s := out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "level=WARN") || !strings.Contains(s, "closed the connection during the handshake") || !strings.Contains(s, "repeated=1000") || !strings.Contains(s, "10.0.0.2") {
				t.Error(s)
			}
		})
	}
}
