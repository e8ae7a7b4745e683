package chp

import (
	"time"

	"clustermap/chp/internal/watch"
)

// Op is the kind of an [Event]. String returns set, delete, synced or bookmark.
type Op = watch.Op

// Kinds of events.
const (
	// OpSet: the key now has the value.
	OpSet Op = watch.OpSet
	// OpDelete: the key is gone. Event.Cause says whether it was deleted or expired.
	OpDelete Op = watch.OpDelete
	// OpSynced: the events so far are a complete, consistent state; changes follow. It
	// occurs once in a watch and has no key.
	OpSynced Op = watch.OpSynced
	// OpBookmark: all changes up to Event.Sequence have been reported, and a later watch can
	// begin there (WatchOptions.Since). It has no key. Only a watch with WatchOptions.Bookmarks
	// reports it: with each heartbeat of the server, and whenever there were updates of which there is nothing to
	// report, unless an event had the sequence already.
	OpBookmark Op = watch.OpBookmark
)

// Cause is the reason for an [Event]. String returns none (for 0), set, deleted, expired or
// resync.
type Cause = watch.Cause

// Causes of events. [OpSynced] has none: its Cause is 0.
const (
	// CauseSet: an update set the key, or the key existed when the watch began.
	CauseSet Cause = watch.CauseSet
	// CauseDeleted: an update deleted the key.
	CauseDeleted Cause = watch.CauseDeleted
	// CauseExpired: the server deleted the key because its time to live ended. Servers
	// of this package mark such deletions. The guide's servers can be recognized too,
	// because their deletions carry an absolute time. With other servers an expiry is
	// reported as CauseDeleted.
	CauseExpired Cause = watch.CauseExpired
	// CauseResync: the client fetched a new snapshot, in which the key differs from
	// the last reported event. The time and the cause of the change are unknown.
	CauseResync Cause = watch.CauseResync
)

// Event is one change that a [Watch] reports. Its slices point into the client's log
// and are valid until the next call on the watch; the caller must not change them. To keep
// an event, use Clone.
type Event struct {
	Op    Op
	Cause Cause // 0 for OpSynced
	Key   []byte
	Value []byte // OpSet

	// Sequence is the sequence of the update. For OpSynced, and for an OpDelete with
	// CauseResync, it is that of the snapshot.
	Sequence int64

	// Previous is the value that the key had before, if the watch has WatchOptions.Previous and
	// knows it; otherwise nil.
	Previous []byte

	UUID       []byte     // of the update, 16 bytes or none
	Properties Properties // of the update

	// TTL of an OpSet is the remaining time to live when the event is fetched, or 0 if
	// the key does not expire (see [Entry]). If a later update of the key
	// was applied in the meantime, it is the time to live that this update was given. A
	// ttl in Properties is the time to live when the update or snapshot arrived.
	TTL time.Duration

	// Transaction is the sequence of the last update of the transaction that this update belongs to
	// (see Client.ApplyIf), or 0 if it is of none with several. The others of it in the
	// watched subtrees, which have the same Transaction, are queued by then: NextBatch
	// reports all of them in one call. The last update has 0 if the client's subtrees have none
	// of the others.
	Transaction int64
}

// Clone returns a copy of the event with memory of its own, which stays valid. It costs
// one allocation.
func (e Event) Clone() Event {
	b := make([]byte, 0, len(e.Key)+len(e.Value)+len(e.Previous)+len(e.UUID)+len(e.Properties))
	for _, p := range []*[]byte{&e.Key, &e.Value, &e.Previous, &e.UUID, (*[]byte)(&e.Properties)} {
		if *p != nil {
			start := len(b)
			b = append(b, *p...)
			*p = b[start:len(b):len(b)]
		}
	}
	return e
}
