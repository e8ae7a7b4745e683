package binarystar

import (
	"cmp"
	"time"

	"clustermap/internal/option"
	"clustermap/sockets"
)

// Options configures a Node. Role, Bind and Peer are required.
type Options struct {
	// Role is the role of this node. The other node must have the other one.
	Role Role

	// Bind is the endpoint at which this node publishes its state, such as
	// "tcp://*:5003". Peer is that of the other node, such as
	// "tcp://backup.example:5004". See sockets.Pub.Bind and sockets.Sub.Connect.
	Bind, Peer string

	// Interval is the interval at which the node publishes its state. Both nodes
	// should have the same. 0 means DefaultInterval.
	Interval time.Duration

	// Timeout is the time without a message after which the peer is silent. It must
	// be longer than Interval, and should be longer than any short pause of a node
	// or of the network. 0 means 2 * Interval.
	Timeout time.Duration

	// Voteless lets a node take over as soon as its peer is silent. By default, a
	// client must also request service from it (Node.Vote), which shows that
	// clients can reach this node, and not only that it cannot reach its peer.
	Voteless bool

	// Epoch is the last epoch that an earlier run of this node passed to
	// StoreEpoch, up to MaxEpoch. The default is 0.
	Epoch uint64

	// StoreEpoch, if set, stores each new epoch for the next run, before the peer
	// hears of it. The node's goroutine calls it and meanwhile sends nothing, so
	// after Timeout the peer may take over. An error ends the node (Node.Err).
	// StoreEpoch must not call Vote, Handover or Close, which wait for that
	// goroutine.
	StoreEpoch func(epoch uint64) error

	// Payload, if set, returns bytes for the peer's application, which are sent
	// with the state and truncated to MaxPayload. The node's goroutine calls it at
	// every step, at least once each Interval, so it must return at once. It may
	// reuse the bytes in the next call. Guide programs do not get them.
	Payload func() []byte

	// Stop, if set, is called when the node ceases to be active, before the peer hears of it:
	// after it has returned, the application accepts nothing more as the active one, so that
	// both do not while the peer takes over. Payload is called again then. epoch is that of the
	// reign that ends. As the application hears of a reign later than the node, Stop can come first.
	// The node's goroutine calls it, so it must return at once, and not call Vote, Handover or Close.
	Stop func(epoch uint64)

	// Valid, if set, reports whether a peer's payload is one that Payload can return.
	// The node refuses messages with others, and counts them (Status.Refused).
	Valid func(payload []byte) bool

	// Compare, if set, compares the data of two nodes by their payloads: a result above
	// 0 means that the own node has data that the peer lacks, below 0 the opposite. The
	// two nodes must get opposite results. The node with more data serves, whatever the
	// epochs are: of two nodes that start, of two passive ones, of two active ones, and
	// if only the other one is active, which must have started without its data, and stops
	// first. So
	// an epoch, which each start raises, decides only between nodes with the same data.
	// Only during a handover the payloads do not count.
	Compare func(own, peer []byte) int

	// Copied, if set, reports whether the other node copies its data from the
	// active one. Then payloads do not make the active node passive: the other node
	// may have received newer data since the active one sent its payload. An
	// application that copies data from the active node must set Copied if it sets
	// Compare.
	Copied func(active, other []byte) bool

	// BindSecurity applies to the socket that is bound, PeerSecurity to the one
	// that connects to the peer. With CURVE the first is usually a server.
	BindSecurity, PeerSecurity sockets.Security

	// Metadata are further properties that both sockets announce to their peers: see
	// sockets.Options.
	Metadata map[string]string

	// Monitor, if set, is called with the events of the connections of both
	// sockets: see sockets.Options.
	Monitor func(sockets.Event)
}

// OptionError describes one invalid field of Options. New reports all invalid fields at
// once, joined by errors.Join.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o Options) withDefaults() (Options, error) {
	c := option.Checker{Package: "binarystar"}
	c.If(o.Role != RolePrimary && o.Role != RoleBackup, "Role", "is neither RolePrimary nor RoleBackup")
	c.If(o.Bind == "", "Bind", "is empty")
	c.If(o.Peer == "", "Peer", "is empty")
	option.Default(&c, "Interval", &o.Interval, DefaultInterval)
	o.Timeout = min(cmp.Or(o.Timeout, 2*o.Interval), option.Forever)
	c.If(o.Timeout <= o.Interval, "Timeout", "is not longer than Interval")
	if o.Valid == nil {
		o.Valid = func([]byte) bool { return true }
	}
	c.If(o.Epoch > MaxEpoch, "Epoch", "is above MaxEpoch")
	c.Valid("BindSecurity", o.BindSecurity.Validate())
	c.Valid("PeerSecurity", o.PeerSecurity.Validate())
	return o, c.Err()
}
