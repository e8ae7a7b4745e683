package peerlog

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/internal/lograte"
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

// Ten thousand clients that come back after an outage are few lines, which count all of them.
func TestManyClientsAreFewLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		queue := lograte.NewQueue(slog.NewTextHandler(&out, nil))
		l := New(queue.Logger())
		const clients = 10_000
		for i := range clients {
			host := fmt.Sprintf("10.0.%d.%d:1000", i/256, i%256)
			l.Connection(sockets.Event{Kind: sockets.EventHandshakeSucceeded, Remote: host}, "publisher", true)
		}
		for range 20 {
			time.Sleep(time.Second)
			l.Flush(time.Now())
		}
		queue.Close()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		counted := 0
		for _, line := range lines {
			n := 1
			for _, name := range []string{"more=", "repeated="} {
				if _, text, found := strings.Cut(line, " "+name); found {
					if _, err := fmt.Sscan(text, &n); err != nil {
						t.Fatal(err)
					}
				}
			}
			counted += n
		}
		if len(lines) > 20 || counted != clients {
			t.Errorf("%d lines about %d clients:\n%s", len(lines), counted, &out)
		}
	})
}

// Who has read that connections could not be accepted reads, at the same level, that they are again.
func TestConnectionsAreAcceptedAgain(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	accepted := sockets.Event{Kind: sockets.EventAccepted, Endpoint: "tcp://127.0.0.1:1", Remote: "10.0.0.1:1"}
	l.Connection(accepted, "snapshot", false)
	if out.Len() > 0 {
		t.Error(out.String())
	}
	l.Connection(sockets.Event{Kind: sockets.EventAcceptFailed, Endpoint: "tcp://127.0.0.1:1", Err: io.ErrNoProgress}, "snapshot", false)
	out.Reset()
	l.Connection(accepted, "snapshot", false)
	l.Connection(accepted, "snapshot", false)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "connections are accepted again") || strings.Contains(got, "10.0.0.1") {
		t.Error(got)
	}
}
