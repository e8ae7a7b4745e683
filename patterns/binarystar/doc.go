// Package binarystar is the Binary Star pattern of the ZeroMQ Guide (chapter 4):
// two servers of which one is active and serves, while the other one is passive
// and takes over when the first dies.
//
// A [Node] is the part of a server that knows whether it is the active one. It
// carries no data: the application replicates its data itself, and the node tells
// it when to begin and when to stop.
//
// # Design
//
// Each node publishes its state at an interval and subscribes to the other one's.
// machine.go is what follows from that: a table of state and event, as pure code.
// node.go runs it on two sockets, in three goroutines: one owns the machine, one
// hears the peer, one admits subscribers. wire.go has the messages. Readers of a
// node's status take no lock.
//
// A server uses it like this:
//
//   - [Node.Vote] for requests of clients, and serve those that it accepts. A
//     passive node that has no copy of the data yet should not vote: reject the
//     request instead.
//   - [Node.Subscribe], and on StatePassive follow the peer, on StateActive
//     stop following and serve what was received.
//   - [Options].StoreEpoch and Epoch, so that reigns are known after a restart.
//   - [Options].Payload, for example the sequence of the last update. The peer
//     sees how far it lags behind ([Peer]), and with Options.Compare the node
//     with more data becomes active where neither is.
//   - [Node.Handover] before a planned stop.
//
// # Epochs
//
// A reign is the time for which one node is active without interruption, and
// the epoch is its number. To become active raises it above all that the node
// has heard of; a passive node takes over its active's. When a link that was
// down comes back and both nodes are active, the one of the older reign becomes
// passive, and of equal reigns the backup's. The number of the reign that goes
// on is then above both.
//
// # Programs of the guide
//
// A node pairs with the guide's bstar programs, in either role. It tells them a
// state of one digit and nothing else; what goes beyond that is sent to peers
// only that announce X-BSTAR in their handshake. A guide program has no epoch,
// so between the two the roles decide: of two actives a primary of this package
// goes on and a backup yields; of two passives a primary takes over and a backup
// waits for a vote. The guide program ends in either case if it hears of it, as
// it does with its own kind.
//
// docs/BINARYSTAR.md has a picture, and says what is guaranteed and what is not.
package binarystar
