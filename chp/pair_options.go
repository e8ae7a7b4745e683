package chp

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"clustermap/sockets"
)

// PairOptions make a server one of two, of which one is active and serves while the
// other one follows it and takes over when it dies: see docs/PAIR.md.
type PairOptions struct {
	// Backup says which of the two the server is. The primary becomes active when
	// both start with the same data.
	Backup bool

	// Peer is the other server's snapshot port P, "tcp://HOST:PORT". An endpoint of this
	// server is refused, here and in PeerState, where that can be told without
	// resolving names; a server that hears itself, or one of its own role, logs that.
	Peer string

	// State is the endpoint at which this server tells its state, such as
	// "tcp://*:5003", and PeerState the one at which the other server does.
	State, PeerState string

	// Interval is how often the state is told. 0 means a second. Timeout is after
	// how long of silence the other server is taken for dead; 0 means twice the
	// Interval. Both servers should have the same.
	Interval, Timeout time.Duration

	// Acks is how many servers must have an update before it is published, and so
	// before SetSync returns: 2, or 1 for this server alone. 0 means 2. With 2 no
	// such update is lost when one of the servers dies. While the other server is
	// away, or takes nothing for the Timeout, updates are published without it,
	// which is logged, and Status tells.
	Acks int

	// PeerSecurity is for the connections to the other server. With CURVE, which both
	// servers use or neither, it has CurveServerKey, the other server's public key, and
	// CurveSecretKey, the same as Security.CurveSecretKey: who follows this server must
	// own the other server's key. By default there is no CURVE, and then who
	// reaches P can pretend to be the other server: see docs/PAIR.md.
	PeerSecurity sockets.Security

	// OnDiverged, if set, is told of the updates of this server that are given up,
	// because it was active while the other one was active too, and the other's reign
	// is newer. The map is then replaced by the active server's. It must not keep
	// Entries.
	OnDiverged func(Divergence)
}

// Divergence tells of updates that only one server of a pair has, and gives up.
type Divergence struct {
	Epoch uint64 // of the reign in which they were made
	After int64  // the last sequence that both servers have, 0 if they have nothing in common
	Last  int64  // the last sequence that is given up

	// Entries yields the keys that these updates set and that are still in the map,
	// with their sequences. Of several updates of a key it has the last one.
	// Deletions are not among them. Key and Value are valid during the call.
	Entries iter.Seq2[Entry, int64]
}

// withDefaults returns the options with their defaults, and what is wrong with them.
func (o PairOptions) withDefaults() (PairOptions, []error) {
	var errs []error
	bad := func(field, reason string) { errs = append(errs, &OptionError{"Pair." + field, reason}) }
	for _, f := range []struct{ name, value string }{{"Peer", o.Peer}, {"State", o.State}, {"PeerState", o.PeerState}} {
		if !strings.Contains(f.value, "://") {
			bad(f.name, fmt.Sprintf("%q is not an endpoint such as tcp://HOST:PORT", f.value))
		}
	}
	if o.Interval < 0 {
		bad("Interval", "must not be negative")
	}
	setDefault(&o.Interval, time.Second)
	setDefault(&o.Timeout, 2*o.Interval)
	if o.Timeout <= o.Interval {
		bad("Timeout", "is not longer than Interval")
	}
	setDefault(&o.Acks, 2)
	if o.Acks != 1 && o.Acks != 2 {
		bad("Acks", fmt.Sprintf("%d is neither 1 nor 2", o.Acks))
	}
	if err := o.PeerSecurity.Validate(); err != nil {
		errs = append(errs, err)
	}
	return o, errs
}
