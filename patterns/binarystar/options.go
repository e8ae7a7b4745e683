package binarystar

import (
	"errors"
	"time"

	"clustermap/sockets"
)

// Defaults of Options, which are those of the guide.
const (
	DefaultInterval = time.Second
	DefaultTimeout  = 2 * DefaultInterval
)

// Options configures a Node. Role, Bind and Peer are needed.
type Options struct {
	// Role is this node's. The other node has the other one.
	Role Role

	// Bind is the endpoint at which this node tells its state, and Peer the one
	// at which the other node does, as sockets.Pub.Bind and sockets.Sub.Connect
	// take them: "tcp://*:5003", "tcp://backup.example:5004".
	Bind, Peer string

	// Interval is how often the state is told. 0 means DefaultInterval. Both
	// nodes should have the same.
	Interval time.Duration

	// Timeout is after how long a peer that tells nothing is taken for dead. It
	// is longer than Interval; 0 means twice the Interval. It should be longer
	// than whatever may stop a node for a moment, or the network between them.
	Timeout time.Duration

	// Voteless lets a node take over as soon as its peer is silent. By default
	// a client must ask it for service, too (Node.Vote), which shows that
	// clients reach this node and not only that it does not reach its peer.
	Voteless bool

	// Epoch is the epoch that StoreEpoch was last given, by an earlier run of
	// this node. Default 0; at most MaxEpoch.
	Epoch uint64

	// StoreEpoch, if set, is told each new epoch before anybody else is, so that
	// it can be kept for the next run. It is called by the node's goroutine,
	// which meanwhile tells nothing to the peer: after the Timeout the peer may
	// take over. An error ends the node (Node.Err). It must not call Vote,
	// Handover or Close, which wait for that goroutine.
	StoreEpoch func(epoch uint64) error

	// Payload, if set, returns bytes for the peer's application, which are sent
	// with the state: up to MaxPayload, more are cut off. It is called by the
	// node's goroutine at every step, at least once each Interval, and must return
	// at once. The node is done with the bytes before the next call. A guide
	// program is not told.
	Payload func() []byte

	// Compare, if set, compares the payloads of two nodes of which neither is
	// active, and which have followed the same reign or of which one has just
	// started. The node with the larger payload becomes active: a result above 0
	// means own, below 0 peer. The two nodes must come to opposite results. If it is
	// 0 or Compare is nil, a passive node comes before one that has just started,
	// and then their roles decide. A handover does not ask.
	//
	// An active node with the smaller payload gives way to a peer whose reign is newer,
	// though that one is not active: it has lost what it had.
	Compare func(own, peer []byte) int

	// Lost, if set, says whether an active node has lost the data of its application:
	// it has nothing, and the other node has something. It then gives way to the other
	// one, whatever their states and reigns.
	Lost func(active, other []byte) bool

	// Copied, if set, says whether the other node has its data from the active one. Then
	// the active node does not give way because of their payloads: the other node may
	// have received newer data than the active one had when it told its payload. An
	// application that copies data from the active node while it runs has to set it, if
	// it sets Compare or Lost.
	Copied func(active, other []byte) bool

	// BindSecurity is for the socket that is bound, PeerSecurity for the one
	// that connects to the peer. With CURVE the first is usually a server.
	BindSecurity, PeerSecurity sockets.Security

	// Monitor, if set, is told what happens to the connections of both sockets:
	// see sockets.Options.
	Monitor func(sockets.Event)
}

// OptionError is one thing that is wrong with an Options. New returns all of
// them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "binarystar: Options." + e.Field + " " + e.Reason }

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o Options) withDefaults() (Options, error) {
	var faults []error
	bad := func(field, reason string) { faults = append(faults, &OptionError{field, reason}) }
	if o.Role != RolePrimary && o.Role != RoleBackup {
		bad("Role", "is neither RolePrimary nor RoleBackup")
	}
	if o.Bind == "" {
		bad("Bind", "is empty")
	}
	if o.Peer == "" {
		bad("Peer", "is empty")
	}
	if o.Interval < 0 {
		bad("Interval", "is negative")
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * o.Interval
	}
	if o.Timeout <= o.Interval {
		bad("Timeout", "is not longer than Interval")
	}
	if o.Epoch > MaxEpoch {
		bad("Epoch", "is above MaxEpoch")
	}
	if err := o.BindSecurity.Validate(); err != nil {
		bad("BindSecurity", err.Error())
	}
	if err := o.PeerSecurity.Validate(); err != nil {
		bad("PeerSecurity", err.Error())
	}
	return o, errors.Join(faults...)
}
