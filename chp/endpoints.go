package chp

import (
	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/ports"
	"clustermap/chp/internal/wire"
)

// A server listens on three endpoints, which one text names: see
// [ServerOptions.Endpoints].

// Endpoints holds the endpoints on which a server listens, with the actual ports.
type Endpoints struct {
	Snapshot  string // P: ROUTER; empty in Clone model 1
	Publisher string // P+1: PUB; P in Clone model 1
	Collector string // P+2: SUB; PULL in Clone models 1 to 5
}

// parseServer derives a server's three endpoints from the text that names it.
func parseServer(name string, d wire.Dialect) (follow.Address, error) {
	b, err := ports.Parse(name, false)
	if err != nil {
		return follow.Address{}, err
	}
	snapshot, publisher, collector := d.Ports()
	return follow.Address{Name: name, Snapshot: b.At(snapshot), Publisher: b.At(publisher), Collector: b.At(collector)}, nil
}
