package commit

import "fmt"

// A Log keeps entries in order.
//
// It begins closed to writing: [Log.Replay] reads what it holds, and only then
// the other methods work. All methods are safe for concurrent use, but entries
// have to be appended in order, so one goroutine appends.
type Log interface {
	// Replay calls fn with all entries: first those of the checkpoint, then
	// those of the log behind it. It checks everything that it reads, and
	// removes a torn end, which the result tells. An error of fn ends it.
	// A [*CorruptError] says that entries which were on the disk
	// cannot be read; the log stays closed to writing and is not changed.
	Replay(fn func(Entry) error) (Replayed, error)

	// Append writes entries behind the last one, without a flush: when it
	// returns, they survive the end of the process but not that of the machine.
	// Index of the first must be Last()+1. After an error other than ErrOrder
	// and ErrTooLarge the log has failed.
	Append(entries ...Entry) error
	// Sync flushes. When it returns without an error, all entries whose Append
	// had returned before the call are on the disk. An error is final.
	Sync() error
	// Commit tells that all entries up to the index are committed: somebody was
	// told that they are kept. The log stores the index with the next entries,
	// as far as it was flushed by then, and uses it to tell a torn end
	// from damage. An index below an earlier one does nothing.
	Commit(index uint64)

	// First returns the index of the first entry that Read can deliver, and
	// Last that of the last one. An empty log has First() == Last()+1.
	First() uint64
	Last() uint64
	// Synced returns the index up to which everything is on the disk.
	Synced() uint64
	// Read calls fn with all entries from the index on that were appended before
	// the call. It may run beside everything but CutBack and Close, which
	// wait for it. If the entry was removed, it returns ErrGone.
	Read(from uint64, fn func(Entry) error) error

	// Checkpoint begins a file with the whole state as it is after the entry
	// with that index; sequence is the state's last one. When the file is complete,
	// it replaces the entries up to the index. There is one checkpoint at
	// a time.
	//
	// The state need not be what the entries add up to. A server that takes the
	// whole state of another one makes a checkpoint of that at Last(), and then
	// appends what follows; an empty log needs an entry for that, with any
	// content. Whatever happens, the log holds the one state or the other.
	Checkpoint(index, sequence uint64) (Checkpoint, error)
	// CutBack removes all entries behind the index, for a server whose last
	// entries are not those of the server it follows.
	CutBack(last uint64) error

	// Epoch returns the stored epoch, SetEpoch stores a higher one and returns when it is
	// on the disk.
	Epoch() uint64
	SetEpoch(epoch uint64) error

	// Close flushes, and closes the log. It returns the error of a log that
	// has failed.
	Close() error
}

// A Checkpoint is a checkpoint that is being written, by one goroutine. Either
// Commit or Abort ends it.
type Checkpoint interface {
	// Append writes one piece of the state. The entry's Index does not count: it
	// becomes that of the checkpoint.
	Append(Entry) error
	// Commit flushes the checkpoint, makes it the current one and removes
	// what it replaces: the checkpoint before, and the log's segments that hold
	// only older entries.
	Commit() error
	// Abort removes the unfinished checkpoint. After Commit it does nothing.
	Abort()
}

// Replayed tells what a log held.
type Replayed struct {
	Checkpoint uint64 // index of the checkpoint, 0 without one
	Sequence   uint64 // last sequence of the checkpoint
	Last       uint64 // index of the last entry
	Committed  uint64 // highest index known to have been committed
	Entries    uint64 // entries delivered, with those of the checkpoint
	Records    uint64 // sum of their counts
	Torn       *Torn  // what was removed at the end, nil if nothing
}

// Torn tells of writes that were under way when the machine or the process
// stopped. No entry in them was reported to be on the disk.
type Torn struct {
	File   string // the segment
	Offset int64  // where the readable part ends
	Bytes  int64  // what was removed behind it
	After  uint64 // index of the last entry that is left
}

func (t *Torn) String() string {
	return fmt.Sprintf("removed %d bytes of unfinished writes at offset %d of %s; the last entry is %d", t.Bytes, t.Offset, t.File, t.After)
}
