// Package order numbers the updates of a server, and puts them into its map when they are
// committed.
//
// A batch of updates goes through these steps:
//
//	order    the updates get their sequences
//	append   they are copied to the log of the store
//	commit   everything that must store them has them: the log on disk, the other
//	         server of a pair, or nothing
//	link     the map has them: the index points to them
//	publish  they are passed to the publisher and to the watches
//
// All of it happens under the mutex of the [Sequencer], which is locked once per batch. So
// the publisher's order is the order of the sequences, and a cut made under the mutex is
// between two batches. If nothing has to be waited for, the steps are one.
//
// Updates are appended before they are committed because the log has the bytes that the
// disk, the other server and the subscribers get. Until they are committed they are held,
// and nobody sees them: what is in the map is published, and what is published is in the map.
//
// Nothing under the mutex waits for a peer or a disk. What waits does so before: Room, and
// a [Pacer] of who brings the updates. When a batch is committed, the [journal.Journal] says.
//
// A server of a pair is passive for a time. Then it orders nothing, and Followed applies the
// batches of the active server with their sequences.
package order
