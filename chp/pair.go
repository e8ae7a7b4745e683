package chp

import (
	"sync"

	"clustermap/chp/internal/partner"
	"clustermap/internal/kvmsg"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
)

// newPair returns the part of a server that belongs to a pair.
func newPair(s *Server, o ServerOptions) *partner.Pair {
	role := binarystar.RolePrimary
	if o.Pair.Backup {
		role = binarystar.RoleBackup
	}
	state, peer := o.Security, o.Pair.PeerSecurity
	if s.rights != nil {
		state.Authenticate = s.authenticatePeer
	}
	var mu sync.Mutex // guards state and peer
	of := func(security *sockets.Security) func() sockets.Security {
		return func() sockets.Security {
			mu.Lock()
			defer mu.Unlock()
			return *security
		}
	}
	s.pairKeys = func(k ServerKeys) {
		mu.Lock()
		defer mu.Unlock()
		setOwnKeys(&state, k.Own)
		peer.CurveSecretKey, peer.CurvePublicKey = state.CurveSecretKey, state.CurvePublicKey
		peer.CurveServerKey, peer.CurveMoreServerKeys = k.Peer[0], k.Peer[1:]
	}
	return partner.New(partner.Options{
		Role: role, Peer: o.Pair.Peer, State: o.Pair.State, PeerState: o.Pair.PeerState,
		Interval: o.Pair.Interval, Timeout: o.Pair.Timeout, Acks: o.Pair.Acks,
		SnapshotTimeout: o.SnapshotTimeout, ExpiryGrace: o.ExpiryGrace,
		Security:     of(&state),
		PeerSecurity: of(&peer),
		Secret:       func() []byte { return o.Pair.Secret },
		Restored:     s.restored > 0, Epochs: o.Log,
		Order: &s.sequencer, Router: s.router, Sockets: []partner.Socket{s.router, s.collector, s.publisher},
		Answer: s.snapshots.Add, Dismiss: s.members.DisconnectAll, Waits: s.local.Waiting, Local: s.admins.here,
		Diverged: func(d partner.Divergence) error { return diverged(o.Pair.OnDiverged, d) }, Log: s.log, PeerLog: s.peerLog,
	})
}

// diverged calls OnDiverged.
func diverged(report func(Divergence), d partner.Divergence) (err error) {
	if report == nil {
		return nil
	}
	report(Divergence{Epoch: d.Epoch, After: d.After, Last: d.Last, failed: &err, Entries: func(yield func(Entry) bool) {
		d.Cut.Records(func(r kvmsg.Record) bool {
			return r.Seq() <= d.After || yield(entryOf(r, d.Cut.Deadlines))
		})
	}})
	return err
}
