package chp

import (
	"log/slog"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// lockedLog collects the log of a client or server.
type lockedLog struct{ testenv.Buffer }

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
