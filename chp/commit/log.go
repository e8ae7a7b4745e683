package commit

import "fmt"

// A Log keeps entries in order.
//
// A new Log cannot be written yet: [Log.Replay] reads its entries, and enables the
// other methods. All methods are safe for concurrent use. Entries must be appended in
// order, so only one goroutine should append.
type Log interface {
	// Replay calls fn with all entries: first those of the checkpoint, then those of
	// the log after it. It verifies the entries, and removes a torn end, which the result
	// describes. An error of fn ends it; to a [*CorruptError] without a file it adds where
	// the entry is. If entries that were once on disk cannot be
	// read, the error is a [*CorruptError]; the log then cannot be written and is not
	// changed.
	Replay(fn func(Entry) error) (Replayed, error)

	// Append writes entries after the last one, without a flush: when it returns, they
	// survive a crash of the process but not of the machine. The first entry must have
	// the index Last()+1. After an error other than ErrOrder and ErrTooLarge the log
	// has failed.
	Append(entries ...Entry) error
	// Sync flushes the log. When it returns nil, all entries whose Append had returned
	// before the call are on disk. An error is permanent.
	Sync() error
	// Commit marks all entries up to the index as committed: the server may have
	// acknowledged them. The log stores the index with the next entries, limited to the
	// entries already flushed, and uses it to distinguish a torn end from damage. An
	// index below an earlier one has no effect.
	Commit(index uint64)

	// First returns the index of the first entry that Read can return, and Last that of
	// the last one. An empty log has First() == Last()+1.
	First() uint64
	Last() uint64
	// Synced returns the index up to which all entries are on disk.
	Synced() uint64
	// Read calls fn with the entries from the index that were appended before the call.
	// It can run concurrently with all methods; CutBack and Close wait for it. If the
	// entry was removed, it returns ErrGone.
	Read(from uint64, fn func(Entry) error) error

	// Checkpoint begins a file with the whole state after the entry with that index;
	// sequence is the last one of the state. When the file is complete, it replaces the
	// entries up to the index. Only one checkpoint can be written at a time.
	//
	// The state need not be the sum of the entries. A server that copies the whole
	// state of another one writes it as a checkpoint at Last(), and then appends the
	// later entries; an empty log needs an entry first, with any content. After a crash
	// the log has either the old state or the new one.
	Checkpoint(index, sequence uint64) (Checkpoint, error)
	// CutBack removes all entries after the index. A server uses it when its last
	// entries differ from those of the server that it follows.
	CutBack(last uint64) error

	// Epoch returns the stored epoch. SetEpoch stores a higher one, and returns when it
	// is on disk.
	Epoch() uint64
	SetEpoch(epoch uint64) error

	// Close flushes and closes the log. It returns the error of a log that has failed.
	Close() error
}

// A Reserver is a Log that allocates space on its disk in advance. A [Group] then accepts
// entries that it reports before they are on disk only while there is space for them, so
// that a full disk loses none of them.
type Reserver interface {
	// Reserve returns how many bytes of entries can be appended after those appended
	// before: their records, and EntrySpace for each. While space is being allocated it may
	// wait. When there will be hardly any more, the error is ErrFull; the log has not failed,
	// and the number is still right. Entries that are very large may be an exception.
	Reserve() (int, error)
	// Short reports whether space for more than that could not be allocated. A checkpoint
	// may make room.
	Short() bool
}

// A Gatherer is a Log whose Append takes entries with Parts. For any other log a [Group]
// copies them into Records.
type Gatherer interface{ GathersParts() }

// A Checkpoint is a checkpoint that one goroutine writes. Either Commit or Abort ends
// it.
type Checkpoint interface {
	// Append writes one piece of the state. The entry's Index is ignored: it becomes
	// that of the checkpoint.
	Append(Entry) error
	// Commit flushes the checkpoint, makes it the current one, and removes the files that
	// it replaces: the previous checkpoint, and the segments of the log that have only
	// older entries.
	Commit() error
	// Abort removes the unfinished checkpoint. After Commit it does nothing.
	Abort()
}

// Replayed describes the content of a log.
type Replayed struct {
	Checkpoint uint64 // index of the checkpoint, 0 without one
	Sequence   uint64 // last sequence of the checkpoint
	Last       uint64 // index of the last entry
	Committed  uint64 // highest index known to have been committed
	Entries    uint64 // entries replayed, including those of the checkpoint
	Records    uint64 // sum of their counts
	Torn       *Torn  // the torn end that Replay removed, or nil
}

// Torn describes writes that were in progress when the machine or the process stopped.
// None of their entries was reported to be on disk.
type Torn struct {
	File   string // the segment
	Offset int64  // where the readable part ends
	Bytes  int64  // the bytes removed after it
	After  uint64 // index of the last remaining entry
}

func (t *Torn) String() string {
	return fmt.Sprintf("removed %d bytes of unfinished writes at offset %d of %s; the last entry is %d", t.Bytes, t.Offset, t.File, t.After)
}
