package chp

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/sockets"
)

// lockedLog collects the log of a client or server.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lockedLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// announcedDealer connects to a server's snapshot port as a client of this
// package.
func announcedDealer(t *testing.T, s *Server) *sockets.Dealer {
	t.Helper()
	d, err := sockets.NewDealer(sockets.Options{Linger: sockets.LingerNone, Metadata: wire.Properties()})
	must(t, err)
	t.Cleanup(func() { d.Close() })
	must(t, d.Connect(s.Endpoints().Snapshot))
	return d
}
