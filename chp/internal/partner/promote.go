package partner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
)

var (
	errActive = errors.New("the server is active")
	errHeard  = errors.New("the other server of the pair is heard: it is not gone")
	errNoCopy = errors.New("the server has not copied the active server's map completely; restarted, it has the map that it had before")
)

// Promote makes this server active if the other one is not heard, also on a new
// connection, and nobody accepts one at its addresses.
func (p *Pair) Promote(ctx context.Context) error {
	switch {
	case p.active.Load():
		return errActive
	case p.mayServe():
	case p.node.State() == binarystar.StatePassive:
		return errNoCopy
	default:
		return fmt.Errorf("the server has just started, and gives the other one %v more to be heard", p.waitsFor().Round(time.Millisecond))
	}
	if p.probe(ctx) == nil {
		return errHeard
	}
	if fault := p.presence.look(ctx); fault != "" {
		return fmt.Errorf("the other server may run, so it is not gone: %s; stop that one, or correct the addresses or keys", fault)
	}
	if err := p.node.Promote(ctx); errors.Is(err, binarystar.ErrPeerHeard) {
		return errHeard
	} else if err != nil {
		return err
	}
	for !p.active.Load() { // Run calls Lead, unless the other server is heard now
		if p.node.State() != binarystar.StateActive {
			return errHeard
		}
		if !wake.Pause(ctx, drainLook) {
			return ctx.Err()
		}
	}
	return nil
}

// waits logs that a backup has not heard the primary since it started, for which it waits
// without end.
func (p *Pair) waits(ctx context.Context) {
	if p.node.State() != binarystar.StateBackup || p.node.Peer().State != 0 || p.waitsFor() > 0 {
		return
	}
	if due, _ := p.vigil.Due("", "waits", time.Now()); !due {
		return
	}
	p.asking.Go(func() {
		text := "if it is gone for good, chp promote makes this server active"
		if fault := p.presence.look(ctx); fault != "" {
			text = "it is not gone: " + fault
		}
		p.o.Log.Warn("waits for the primary, which has not been heard since this server started and may have newer updates; "+text,
			"peer", p.o.Peer, "peer_state", p.o.PeerState, "waited", time.Since(p.Began).Round(time.Second), "keys", p.o.Order.Live().Now().Store.Len())
	})
}
