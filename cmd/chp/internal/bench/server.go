package bench

import (
	"log/slog"

	"clustermap/chp"
	"clustermap/cmd/chp/internal/bench/link"
)

// server is the role in the middle.
func server(p *link.Peer) error {
	s, err := chp.NewServer(chp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Listen(p.Context()); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Ready, Servers: []string{s.Endpoints().Snapshot}})
	return s.Serve(p.Context())
}
