package bench

import (
	"errors"
	"log/slog"

	"clustermap/chp"
	"clustermap/cmd/chp/internal/bench/link"
	"clustermap/zmtp"
)

// newClient returns a client that connects to the servers of a peer's task with its
// keys.
func newClient(p *link.Peer, o chp.ClientOptions) (*chp.Client, error) {
	o.Servers = p.Servers
	o.MaxMapBytes = -1                       // it is as large as the benchmark makes it
	o.Logger = slog.New(slog.DiscardHandler) // the benchmark reports errors itself
	if p.CurveServerKey != "" {
		var e1, e2 error
		o.Security.CurveSecretKey, e1 = zmtp.ParseSecretKey(p.CurveKey)
		o.Security.CurveServerKey, e2 = zmtp.ParsePublicKey(p.CurveServerKey)
		if err := errors.Join(e1, e2); err != nil {
			return nil, err
		}
	}
	return chp.NewClient(o)
}
