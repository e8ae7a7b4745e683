package commit

import "time"

// KindRecords is the kind of entry that holds updates.
const KindRecords = 0

// MaxEntryBytes bounds the records of one entry.
const MaxEntryBytes = 64 << 20

// An Entry is one batch of updates, and the unit that a [Log] appends, reads and
// checks. Batches of some 100 KiB are best: all costs of a log but the copying
// and the checksum are per entry.
type Entry struct {
	// Index is the position in the log. Indexes are consecutive; the first is 1.
	// Each entry of a checkpoint has the index of the checkpoint.
	Index uint64
	// Epoch is the reign of the server that made the batch.
	Epoch uint64
	// First is the sequence of the first update, Count the number of updates.
	First uint64
	Count uint32
	// Kind tells what Records holds. KindRecords is a batch of updates; other
	// values are for the server's own use. A log only stores the kind.
	Kind uint32
	// Time is the wall clock when the batch was made, in nanoseconds since 1970.
	Time int64
	// Records holds the updates in wire form. A log that is given an entry does
	// not keep the slice after it returns. A function that is given an entry
	// by a log must not keep the slice.
	Records []byte
}

// When returns Time as a time.
func (e *Entry) When() time.Time { return time.Unix(0, e.Time) }
