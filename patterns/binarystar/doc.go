// Package binarystar implements the Binary Star pattern of the ZeroMQ Guide (chapter
// 4): of two servers one is active and serves, while the other one is passive and takes
// over when the first one fails.
//
// A [Node] is the part of a server that knows whether it is the active one. It carries
// no data: the application replicates its data itself, and the node tells it when to
// begin and when to stop.
//
// # Design
//
// Each node publishes its state at an interval and subscribes to the state of the other
// one. Package internal/election has the rules: a table of states and events, without I/O.
// node.go runs its machine on two sockets, with three goroutines: one owns the machine, one
// receives from the peer, one accepts subscribers. wire.go has the messages. Reading a
// node's status takes no lock.
//
// A server uses these methods and options:
//
//   - [Node.Vote] for requests of clients; the server serves those that Vote accepts. A
//     passive node that has no copy of the data yet should reject requests without a
//     vote.
//   - [Node.Subscribe]: on StatePassive follow the peer, on StateActive stop following
//     and serve the received data.
//   - [Options].StoreEpoch and Epoch, so that the epoch survives a restart.
//   - [Options].Payload, for example the sequence of the last update. The peer sees
//     how far it lags behind ([Peer]), and with Options.Compare the node with more data
//     becomes active.
//   - [Node.Handover] before a planned stop.
//   - [Node.Promote] when an operator knows that the peer is gone.
//
// # Epochs
//
// A reign is the time during which one node is active without interruption, and the
// epoch is its number. A node that becomes active raises the epoch above all that it
// has heard of; a passive node takes the epoch of the active one. If both nodes are
// active when a broken link recovers, the node with less data becomes passive, or that
// with the older epoch; with equal epochs it is the backup. The other node continues with
// an epoch above both.
//
// # Programs of the guide
//
// A node can pair with the guide's bstar programs, in either role. It sends them only a
// state of one digit; extensions are sent only to peers that announce X-BSTAR in their
// handshake. A guide program has no epoch, so the roles decide: of two active nodes a
// primary of this package continues and a backup becomes passive; of two passive ones a
// primary takes over and a backup waits for a vote. In both cases the guide program
// terminates if it hears of it, as it does with its own kind.
//
// docs/BINARYSTAR.md has a diagram, and lists the guarantees and their limits.
package binarystar
