package chp

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"clustermap/internal/option"
	"clustermap/sockets"
)

// PairOptions makes a server one of a pair: one server is active and serves, the other
// one follows it and takes over when it fails. See docs/PAIR.md.
type PairOptions struct {
	// Backup selects the role: backup, or primary if false. The primary becomes active
	// when both start with the same data.
	Backup bool

	// Peer is the other server's snapshot port P, "tcp://HOST:PORT". NewServer refuses
	// an endpoint of this server, here and in PeerState, if it can detect that without
	// resolving names. A server that hears itself, or another one of its own role, logs
	// that.
	Peer string

	// State is the endpoint at which this server publishes its state, such as
	// "tcp://*:5003". PeerState is the other server's.
	State, PeerState string

	// Interval is the time between two state messages; 0 means a second. Timeout is how
	// long the other server may be silent before it is considered dead, at least twice
	// the Interval; 0 means that. Use the same values on both servers.
	Interval, Timeout time.Duration

	// Acks is the number of servers that must have an update before it is published,
	// and so before SetSync returns: 2, or 1 for this server alone. 0 means 2. With 2
	// no published update is lost when one server dies. While the other server is away,
	// or has not read anything for Timeout, updates are published without it; the
	// server logs that and Status reports it.
	Acks int

	// PeerSecurity is for the connections to the other server. With CURVE, which both
	// servers must use or neither, it has CurveServerKey, the other server's public key,
	// and CurveSecretKey, the same as Security.CurveSecretKey: only the owner of the
	// other server's key may follow this server. By default there is no CURVE, and then
	// only the server that answers at PeerState may: see Secret and docs/PAIR.md.
	PeerSecurity sockets.Security

	// Secret, if set, is known to both servers of a pair without CURVE, and only to
	// them: a follower must prove that it knows it, without sending it. It has 16 bytes
	// or more. With CURVE the keys do that, and Secret must be empty.
	Secret []byte

	// OnDiverged, if set, is called with the updates that this server discards, because
	// both servers were active at the same time and the other one's reign is newer.
	// Afterwards the active server's map replaces this one's, unless the function has
	// called Divergence.Fail. It must not keep Entries.
	OnDiverged func(Divergence)
}

// Format implements [fmt.Formatter]. It formats o like any struct. Without it, the verbs
// that do not fit a pointer would print the keys of the options that point to it, because
// then package fmt calls no methods. It leaves out Secret.
func (o PairOptions) Format(f fmt.State, verb rune) {
	o.Secret = nil
	type shown PairOptions // without this method
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), shown(o))
}

// Divergence describes updates that only one server of a pair has, and that it
// discards.
type Divergence struct {
	Epoch uint64 // the term of the reign that made them
	After int64  // the last sequence that both servers have, 0 if they have nothing in common
	Last  int64  // the last discarded sequence

	// Entries yields the keys that these updates set and that still exist: for each key
	// its last update. It does not yield deletions. Key and Value are lent for the body
	// of the loop.
	Entries iter.Seq[Entry]

	failed *error // of Fail
}

// Fail says that OnDiverged, which calls it, could not keep the updates, for example because a
// disk is full. Then they are not discarded: the server keeps its map and does not follow,
// logs why, and after at most some seconds copies the other map anew and calls OnDiverged again.
func (d Divergence) Fail(err error) {
	if d.failed != nil {
		*d.failed = err
	}
}

// withDefaults returns the options with their defaults, and the errors of all invalid
// fields.
func (o PairOptions) withDefaults() (PairOptions, []error) {
	var errs []error
	bad := func(field, reason string) { errs = append(errs, option.New("chp", "Pair."+field, "%s", reason)) }
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
	if o.Timeout < 2*o.Interval {
		bad("Timeout", "is shorter than two Intervals") // one late message is no silence
	}
	setDefault(&o.Acks, 2)
	if o.Acks != 1 && o.Acks != 2 {
		bad("Acks", fmt.Sprintf("%d is neither 1 nor 2", o.Acks))
	}
	switch {
	case len(o.Secret) > 0 && !o.PeerSecurity.CurveServerKey.IsZero():
		bad("Secret", "is not for CURVE, where the keys prove who follows")
	case len(o.Secret) > 0 && len(o.Secret) < minSecret:
		bad("Secret", fmt.Sprintf("has %d bytes; it needs %d", len(o.Secret), minSecret))
	}
	o.Secret = slices.Clone(o.Secret)
	if err := o.PeerSecurity.Validate(); err != nil {
		errs = append(errs, err)
	}
	return o, errs
}
