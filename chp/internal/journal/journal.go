// Package journal is how updates become committed: the borders between a server that orders
// updates and whatever must have them before they may be seen.
//
// A server appends each batch of updates to the log of its store, and then to its [Journal],
// which says when the batch is committed. Then the batch is in the map, and published.
// Nothing else in the server knows what has to be waited for. There are
//
//	[Memory]           a batch is committed at once
//	journal/disk       when it is flushed, by the policy of the log
//	journal/pair       when the other server has it, too; on top of one of those above
//
// A journal refers to the bytes where they are, in the segments of the store's log, which it
// retains for as long as it needs them.
//
// # How journals compose
//
// A journal that asks others, as a pair does, stands on a local one: it embeds that, and
// changes Append, AtOnce and Committed. So a server's journal is one value, and what is local
// (room, saving, failure) has one place. Two journals beside each other, joined by a third,
// would need the same calls, and an index of their own.
//
// # Room for Raft
//
// A journal by quorum stands in this place, in journal/raft, on the local journal:
//
//   - Append proposes the batch as one entry of etcd-io/raft's log, with Head and updates as
//     state.Head.Append and the wire have them. AtOnce is false, and Committed compares with
//     the commit index. Append, which never waits, keeps the index; Ready.Entries go to the
//     local journal, and Ready.Messages to the others once that has them.
//   - The goroutine that owns the RawNode calls the function Changed that the journal was made
//     with, as the disk's flusher does, when Ready.CommittedEntries has grown.
//   - A leader that loses its term holds entries that others may have dropped: the store's
//     Truncate is for those. What its successor has committed comes as the batches of a pair
//     come to a passive server: from outside, to state.Apply.
//   - A snapshot is a state.Image: Save writes one, and state.Read is what a member begins
//     with that is too far behind.
//   - Which server leads is not this package's matter, as it is not for a pair
//     (patterns/binarystar): a change of leader becomes a call of the server to order updates,
//     or no longer.
package journal

import (
	"context"
	"math"

	"clustermap/chp/internal/state"
	"clustermap/internal/store"
)

// Index is the place of a batch in a journal. It increases by one with each.
type Index uint64

// Never is the index of a batch that the journal has not taken, which is never committed.
const Never = math.MaxUint64

// A Journal commits batches of updates in the order in which they are appended.
//
// Append, AtOnce and Committed are called by one goroutine at a time, with the mutex of the
// owner, and never wait. The other methods are safe for concurrent use. When a batch may have
// become committed, the journal calls the function that its owner has given it for that,
// without a lock.
type Journal interface {
	// AtOnce reports whether every batch that is appended now is committed whatever Append
	// returns. Then it may be in the map before it is appended.
	AtOnce() bool
	// Append takes a batch, whose updates are in the log of the store, and returns its index.
	// It retains the segments of the pieces as long as it needs their bytes; the slice is the
	// caller's. If the journal has failed, the index is Never; the server is about to end.
	//
	// held is the number of batches before it that are not in the map yet: a copy of the map
	// does not have them.
	Append(h state.Head, pieces []store.Piece, held int) Index
	// Committed reports whether a batch is committed, given its index and the sequence of its
	// last update.
	Committed(i Index, last int64) bool

	// Room waits until another batch can be appended, and returns the error of a journal that
	// has failed.
	Room(ctx context.Context) error
	// Stored waits until this server may say that it has all that was appended before.
	Stored(ctx context.Context) error
	// Save stores a whole map in place of all batches up to an index. cut returns both; the
	// map is released. Only one goroutine at a time may call it.
	Save(ctx context.Context, cut func() (*state.Image, Index)) error
	// Restored is called when the map was replaced by one that Save has stored: no batch from
	// before continues it. It is called like Append.
	Restored()
	// Due reports whether a map should be saved: because least bytes were appended since one
	// was, or because that makes room on a disk that has none.
	Due(least int64) bool
	// Failed returns a channel that is closed when the journal has failed; nil if it cannot.
	Failed() <-chan struct{}
	// Close stores what was appended, and returns the error of a journal that has failed. Nothing
	// must be appended any more.
	Close() error
}

// Memory is the journal of a server without a disk: it stores nothing, and commits at once.
type Memory struct{}

func (Memory) AtOnce() bool                                             { return true }
func (Memory) Append(state.Head, []store.Piece, int) Index              { return 0 }
func (Memory) Committed(Index, int64) bool                              { return true }
func (Memory) Room(context.Context) error                               { return nil }
func (Memory) Stored(context.Context) error                             { return nil }
func (Memory) Save(context.Context, func() (*state.Image, Index)) error { return nil }
func (Memory) Restored()                                                {}
func (Memory) Due(int64) bool                                           { return false }
func (Memory) Failed() <-chan struct{}                                  { return nil }
func (Memory) Close() error                                             { return nil }
