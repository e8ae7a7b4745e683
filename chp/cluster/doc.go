// Package cluster keeps one log on three or more nodes, so that it survives the loss of any
// minority of them. It is the engine of a cluster of servers, and knows nothing of maps: an entry is
// a batch of updates as a server orders them, an [Owner] has the state that they make.
//
// The algorithm is Raft, as go.etcd.io/raft/v3 has it, with pre-vote, check-quorum and asynchronous
// writes. The log on disk is that of package clustermap/chp/durable, so that a server without a
// cluster and a cluster of one have the same files. The transport is on clustermap/sockets.
//
// # How an entry goes
//
//  1. [Node.Propose] copies the batch into an entry of raft, and returns where it stands. It fails
//     if the node does not lead in the term that the caller was told: what was prepared in an
//     earlier term never gets into the log.
//  2. Raft has the entry for the disk and for each follower at once. The goroutine append writes
//     it, flush flushes all that was written meanwhile with one call, and send gives the transport
//     the messages: the disks of all nodes work at the same time.
//  3. A follower answers when the entry is on its disk. When a majority has it, raft passes it
//     to the goroutine apply.
//  4. [Owner.Committed] gets it, in order, with Own if this node proposed it. A proposal that
//     another term has replaced is passed to [Owner.Lost]. Each is reported once.
//
// # What is where
//
// All that decides is in the core (core.go and the files beside it): it has no goroutine, no lock, no
// clock and no file, so that a simulation runs thousands of clusters a minute, each of which a seed
// repeats. Its work stands in queues. A [Node] gives each to a goroutine:
//
//	tick     calls the core at each tenth of the election time-out
//	append   queue appends: writes entries, votes and snapshots       disk.go
//	flush    flushes, and delivers the answers to what was written
//	apply    queue tasks: calls the owner                             apply.go
//	parts    queue parts: writes what arrives of a snapshot           receive.go
//	pulls    queue pulls: reads an image for a follower               send.go
//	send     queue out: messages to other nodes                       socket.go
//
// One mutex guards the core. No goroutine holds it while it reads or writes a file, calls the owner,
// or waits.
//
// # Reads
//
// [Node.ReadIndex] returns a point that has everything committed before the call. The leader asks a
// majority whether it still leads, once for all calls that wait, from whatever node. There are no
// leases, so no clock decides what a read sees.
//
// # On disk
//
// A directory has the files of package durable, and a file with the name "member": the ids of cluster
// and node, the term and the vote, the members, and whether a change of them is committed. It is
// flushed at each change of these. In the log, an entry of raft is an entry of durable: the epoch is
// the term, and three kinds are added (entry.go). The state records of the log keep their meaning, up
// to which entry it is committed and flushed, and not the vote, since in their place stands the
// token by which durable knows its own records.
//
// A log of a server without a cluster becomes that of a cluster of one by the file. A checkpoint
// has the members as its first entry, so a snapshot from another node is installed as a checkpoint.
//
// # Followers that are behind
//
// The end of the log is kept in memory, [Options].TailBytes of it. A follower that needs more gets an
// image of the owner, in parts, of which at most 4 MiB are under way at a time.
package cluster
